"""Write a report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ... import __version__
from ...errors import InputError
from .facts import facts
from .figures import figures
from .reported_run import ReportedRun
from .verdict import StoredVerdict

TEMPLATE = "page.html.j2"


@attrs.frozen
class DiffLine:
    """A line of a diff: added, removed, or neither."""

    text: str

    @property
    def kind(self) -> str:
        """The class that colours it."""
        if self.text.startswith(("+++", "---")):
            return "file"
        return {"+": "added", "-": "removed"}.get(self.text[:1], "same")


def page(runs: Sequence[ReportedRun], verdict: StoredVerdict | None, diff: str) -> str:
    """The page of these runs. Raises InputError where jinja2 or plotly is not installed."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly import offline
    except ImportError as error:
        raise InputError(
            f"a page needs {error.name}: pip install 'ddpfix[report]'; without --html the figures "
            "are printed"
        ) from None
    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    found = figures(runs)
    plots = ", ".join(f'"{one.name}": {one.plot.to_json()}' for one in found)
    names = " and ".join(run.name for run in runs)
    return environment.get_template(TEMPLATE).render(
        title=f"Training report: {names}",
        subtitle="Before and after, side by side." if len(runs) == 2 else "",
        version=__version__,
        runs=runs,
        facts=facts(runs),
        verdict=verdict,
        figures=found,
        diff=[DiffLine(line) for line in diff.splitlines()],
        plots=f"{{{plots}}}".replace("<", "\\u003c"),  # lest a name ends the script it is in
        library=offline.get_plotlyjs().replace("</script", "<\\/script"),
    )
