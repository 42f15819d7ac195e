"""Find the pretrained model that a script trains: the option that names it and the class it has.

An option names the model because its value reaches a ``from_pretrained`` of a model class, not
because of its own name. What surrounds the model in the script is read by `local_models`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ....record import record
from ...source.module import Module
from ...source.tree import argument, has_forward, parameters
from ..models.local_models import Surroundings, has_own_head, read_encoder, surroundings
from ..training.program import Program
from .flag_roles import flag_roles, options_in
from .model_source import ModelSource, model_source
from .step_settings import StepSettings, step_settings
from .step_state import frozen_weights, optimizer_kind, repeated_passes

NO_MODELS = ("config", "tokenize", "processor", "featureextractor")  # others with from_pretrained
NO_MODEL = "the script makes no model by from_pretrained"
OWN_CLASS = ("cls", "self", "super")  # a library's own from_pretrained, vendored


@record
class PretrainedModel:
    """A model that the script makes from a folder or a name in the hub.

    `value` is that folder or name and `flag` the option that gives it, "" where it stands in the
    script. `config` is the same for its configuration, where another option names that.
    `model_class` is a class of transformers; `head` is what the script puts behind it
    (`recipes.network.GENERIC_HEADS`), `source` the script's own class where that has to be read,
    `sequences` how many it reads of one example, and `optimizer` what it trains it with. `path` and
    `line` are where it is made.
    """

    value: str
    flag: str
    config: str
    model_class: str
    head: str
    optimizer: str
    path: str
    line: int
    settings: StepSettings
    sequences: int = 1
    source: str = ""


@record
class UnknownModel:
    """Why the model cannot be told from the script, as the end of a sentence."""

    because: str


@record
class Construction:
    """A call that makes a model from a name, with the options that reach the name."""

    module: Module
    call: ast.Call
    class_name: str
    owner: tuple[Module, ast.ClassDef] | None  # the program's own class
    options: tuple[str, ...]
    value: str

    @property
    def target(self) -> str:
        """The name that it binds, as source text."""
        stmt = self.module.statement(self.call)
        return self.module.text(stmt.targets[0]) if isinstance(stmt, ast.Assign) else ""

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.module.source.name}:{self.call.lineno}"


def pretrained_model(
    program: Program, values: Mapping[str, str] | None = None
) -> PretrainedModel | UnknownModel:
    """The model that the program trains with these values of options, by their attributes."""
    option_values = {dest: str(one.default) for dest, one in program.options.items() if one.default}
    option_values.update(values or {})
    made = _trained(program, option_values)
    if isinstance(made, UnknownModel):
        return made
    optimizer = optimizer_kind(program)
    if optimizer.startswith("?"):
        return UnknownModel(optimizer[1:])
    settings = step_settings(program, made.module, made.call, option_values)
    because = frozen_weights(program) or settings.because or repeated_passes(program)
    around, source = _around(program, made), ModelSource()
    if around.is_readable and not because:
        source = _source(program, made, option_values)
    if because or (around.because and not source.text):
        return UnknownModel(around.because or because)
    flag = program.options[made.options[0]].flags if made.options else []
    return PretrainedModel(
        value=made.value,
        flag=flag[0] if flag else "",
        config=_config_value(program, made, option_values),
        model_class=around.encoder or made.class_name,
        head="read" if source.text else around.head,
        optimizer=optimizer,
        path=made.module.source.name,
        line=made.call.lineno,
        settings=settings,
        sequences=around.sequences,
        source=source.text,
    )


def _trained(program: Program, option_values: Mapping[str, str]) -> Construction | UnknownModel:
    """The one construction of the trained model; those of the run's own output are others."""
    found = [*_constructions(program, option_values)]
    if not found:
        return UnknownModel(NO_MODEL)
    made = [one for one in found if one.value]
    if not made:
        flags = {flag for one in found for name in one.options for flag in _flags(program, name)}
        needs = f"pass {' or '.join(sorted(flags))}" if flags else "no option or name reaches it"
        return UnknownModel(f"{found[0].place} makes the model of a name not known: {needs}")
    first = made[0]
    for other in made[1:]:
        if other.target != first.target:
            return UnknownModel(f"{first.place} and {other.place} make a model each")
        if (other.value, other.class_name) != (first.value, first.class_name):
            return UnknownModel(f"{first.place} and {other.place} make different models")
    if not first.class_name:
        return UnknownModel(f"which class {first.place} makes cannot be told")
    return first


def _constructions(program: Program, option_values: Mapping[str, str]) -> Iterator[Construction]:
    output = flag_roles(program).get("output")
    written = {
        dest
        for dest, option in program.options.items()
        if output is not None and option.spellings == output.spellings
    }
    for module, call in program.calls_to("from_pretrained"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        source = argument(call, 0, "pretrained_model_name_or_path", "model_name_or_path")
        if base is None or source is None or not program.is_live(module, call):
            continue
        name, owner = _class(program, module, base, option_values)
        if name in OWN_CLASS or any(word in name.lower() for word in NO_MODELS):
            continue
        if not name and any(word in module.text(base).lower() for word in NO_MODELS):
            continue
        options = tuple(options_in(program, module, source))
        if options and written & set(options):
            continue
        value = next((option_values[one] for one in options if option_values.get(one)), "")
        if not options:
            if not (isinstance(source, ast.Constant) and isinstance(source.value, str)):
                continue
            value = source.value
        yield Construction(module, call, name, owner, options, value)


def _class(
    program: Program, module: Module, base: ast.expr, option_values: Mapping[str, str]
) -> tuple[str, tuple[Module, ast.ClassDef] | None]:
    """The class's name, "" where it cannot be told, and the program's own class of that name."""
    if isinstance(base, ast.Call):
        return "super", None
    resolved = program.resolve(module, base)
    if resolved is not None and isinstance(resolved[1], ast.ClassDef):
        return resolved[1].name, (resolved[0], resolved[1])
    entry = (
        _table_entry(program, module, base, option_values) if isinstance(base, ast.Name) else None
    )
    if entry is not None:
        return _class(program, entry[0], entry[1], option_values)
    name = module.last_name(base)
    return (name if name[:1].isupper() or name in OWN_CLASS else ""), None


def _table_entry(
    program: Program, module: Module, name: ast.Name, option_values: Mapping[str, str]
) -> tuple[Module, ast.expr] | None:
    """The class expression behind ``_, cls, _ = CLASSES[args.kind]``, for the option's value."""
    for stmt in module.nodes(ast.Assign):
        if module.function(stmt) is not module.function(name):
            continue
        target, value = stmt.targets[0], stmt.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        places = [
            i for i, one in enumerate(names) if isinstance(one, ast.Name) and one.id == name.id
        ]
        if not places or not isinstance(value, ast.Subscript):
            continue
        row = _row(program, module, value, option_values)
        if row is None:
            return None
        where, entry = row
        if not isinstance(target, ast.Tuple):
            return where, entry
        parts = entry.elts if isinstance(entry, ast.Tuple | ast.List) else []
        return (where, parts[places[0]]) if places[0] < len(parts) else None
    return None


def _row(
    program: Program, module: Module, value: ast.Subscript, option_values: Mapping[str, str]
) -> tuple[Module, ast.expr] | None:
    """The value of ``TABLE[args.kind]``."""
    table = program.resolve(module, value.value)
    options = options_in(program, module, value.slice)
    key = option_values.get(options[0]) if len(options) == 1 else None
    stmt = table[1] if table is not None else None
    holder = stmt.value if isinstance(stmt, ast.Assign | ast.AnnAssign) else stmt
    if table is None or key is None or not isinstance(holder, ast.Dict):
        return None
    for each, entry in zip(holder.keys, holder.values, strict=True):
        if isinstance(each, ast.Constant) and str(each.value).lower() == key.lower():
            return table[0], entry
    return None


def _around(program: Program, made: Construction) -> Surroundings:
    """What the script's own classes put around the model, or are of it."""
    if made.owner is not None:
        return read_encoder(program, *made.owner)
    module = made.module
    owner = module.enclosing_class(made.call)
    if owner is not None and made.target.startswith("self."):
        return surroundings(program, module, owner, made.target, made.class_name)
    for where, call in _users(program, made):
        resolved = program.resolve(where, call.func)
        if resolved is None or not isinstance(resolved[1], ast.ClassDef):
            continue
        attribute = _attribute_of(resolved[0], resolved[1], where, call, made.target)
        if attribute:
            return surroundings(program, resolved[0], resolved[1], attribute, made.class_name)
        if has_forward(resolved[1]):
            because = f"where {resolved[1].name} keeps its encoder is not seen"
            return Surroundings(because=because, is_readable=True)
    head = "own" if has_own_head(made.class_name) else "none"
    return Surroundings(head, made.class_name)


def _source(program: Program, made: Construction, option_values: Mapping[str, str]) -> ModelSource:
    """The source of the script's own class around the model, or of which it is."""
    module = made.module
    if made.owner is not None:
        return model_source(program, *made.owner, None, module, "", option_values)
    owner = module.enclosing_class(made.call)
    if owner is not None and made.target.startswith("self."):
        calls = [
            (where, call)
            for where, call in program.calls_to(owner.name)
            if program.is_live(where, call)
        ]
        if len(calls) != 1:
            return ModelSource(because=f"{owner.name} is not made in one place")
        return model_source(program, module, owner, calls[0][1], calls[0][0], "", option_values)
    for where, call in _users(program, made):
        resolved = program.resolve(where, call.func)
        if resolved is not None and isinstance(resolved[1], ast.ClassDef):
            return model_source(
                program, resolved[0], resolved[1], call, where, made.target, option_values
            )
    return ModelSource(because=f"no class around {made.class_name} is seen")


def _users(program: Program, made: Construction) -> Iterator[tuple[Module, ast.Call]]:
    """Calls below the construction in the same function that get the model."""
    module, function = made.module, made.module.function(made.call)
    for call in module.nodes(ast.Call):
        passed = [*call.args, *(keyword.value for keyword in call.keywords)]
        if module.function(call) is function and any(
            isinstance(one, ast.Name) and one.id == made.target for one in passed
        ):
            yield module, call


def _attribute_of(
    module: Module, owner: ast.ClassDef, where: Module, call: ast.Call, name: str
) -> str:
    """The ``self.encoder`` that a class's constructor keeps an argument as; "" without one."""
    make = next((x for x in owner.body if getattr(x, "name", "") == "__init__"), None)
    if not isinstance(make, ast.FunctionDef):
        return ""
    names = [arg.arg for arg in make.args.args][1:]
    bound = dict(zip(names, call.args, strict=False))
    bound |= {one.arg: one.value for one in call.keywords if one.arg in parameters(make)}
    held = {p for p, value in bound.items() if isinstance(value, ast.Name) and value.id == name}
    for stmt in module.nodes(ast.Assign):
        if module.function(stmt) is make and isinstance(stmt.value, ast.Name):
            target = stmt.targets[0]
            if stmt.value.id in held and isinstance(target, ast.Attribute):
                return module.text(target)
    return ""


def _config_value(program: Program, made: Construction, option_values: Mapping[str, str]) -> str:
    """The folder or name of a configuration of its own, or the model's."""
    for module, call in program.calls_to("from_pretrained"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if base is None or "config" not in module.text(base).lower() or not call.args:
            continue
        options = options_in(program, module, call.args[0])
        if set(made.options) & set(options):
            named = [one for one in options if "config" in one and option_values.get(one)]
            return option_values[named[0]] if named else made.value
    return made.value


def _flags(program: Program, dest: str) -> tuple[str, ...]:
    return tuple(program.options[dest].flags)
