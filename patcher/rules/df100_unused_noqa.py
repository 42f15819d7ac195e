"""A noqa comment silences nothing.

What         A comment `# noqa: DF…` stands where the rule that it names finds nothing.
At run time  Nothing. The next finding on that line would go unseen.
Example      model = build(args)  # noqa: DF301
Fix          Take the code out of the comment. Comments that name no code of ddpfix, codes of rules
             that were not selected, and modules that other scripts import are left alone.
Fix safety   Report only.
Source       https://docs.astral.sh/ruff/rules/unused-noqa/ does the same for its own codes
"""

from collections.abc import Iterator

from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF100", Severity.NOTE, Safety.REPORT
ANYWHERE = True


def findings(program: Program) -> Iterator[Finding]:
    # What a comment silences is known only after all other rules: engine/noqa.py reports it.
    return iter(())
