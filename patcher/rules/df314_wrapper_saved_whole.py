"""A file holds the wrapper of the model.

What         torch.save or pickle.dump of a model in DistributedDataParallel itself, not of its
             state: alone, or in a dictionary.
At run time  The file is of no use without a process group: ValueError at torch.load, Default
             process group has not been initialized. With one, a script that wraps what it has
             loaded wraps it twice.
Example      model = DistributedDataParallel(model); torch.save(model, "best.pt")
Fix          Save the module inside. Of a container that steps or evaluations use as well, none.
Fix safety   Safe: a process without a group saves what it saved.
Source       torch.nn.parallel.DistributedDataParallel (__setstate__)
"""

from collections.abc import Iterator

from ..analysis.models.saved_wrappers import saved_wrappers, wrappers_in_parts
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import unwrapped_model

CODE, SEVERITY, SAFETY = "DF314", Severity.DEGRADED, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    parts = wrappers_in_parts(program)
    for module, name, is_safe in (*((*each, True) for each in saved_wrappers(program)), *parts):
        text = module.text(name)
        code = f"{unwrapped_model(text)} if torch.distributed.is_initialized() else {text}"
        because = f"{text} is wrapped in DistributedDataParallel here"
        edits = (Rewrite(name, code), Import("torch")) if is_safe else ()
        yield Finding(module, name, because, edits)
