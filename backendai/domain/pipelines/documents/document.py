"""The document of a run: read whole, with the key that is wrong named before anything is written. No database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_variable_name
from backendai.base.core.nearest import nearest_to
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.written_documents import check_extent
from backendai.domain.compute.spec_document import USUAL, VERSION, spec_of
from backendai.domain.pipelines.elements import FAN_KEYS, MOST_TASKS, NAME, FanOut, fan_of, number_of
from backendai.domain.pipelines.retries import retry_of
from backendai.domain.templates.documents import NEVER
from backendai.domain.templates.parameters import Parameter, as_text, parameters_of, values_of
from backendai.domain.templates.rendering import Layer, Source, check_gaps, filled_in, merged
from backendai.scheduler.runs.snapshot import OnFailure, When

KIND, ARRAY = "pipeline", "array"
MOST_STEPS = 1_000
MOST_EDGES = 10_000
MOST_VALUES = 50_000
LARGEST = 256 * 1024
FINALLY = "finally"
BATCH = next(name for name, kind in KINDS.items() if kind.has_result)
SESSION_KEYS = frozenset(USUAL) - NEVER - {"name", "type"}
STEP_KEYS = SESSION_KEYS | FAN_KEYS | {"after", "template", "parameters"}
TOP_KEYS = frozenset(
    {"kind", "version", "name", "params", "workspace", "defaults", "steps", FINALLY, "on_failure", "at_once"}
)
ARRAY_KEYS = SESSION_KEYS | FAN_KEYS | {"kind", "version", "name", "type", "on_failure", "template", "parameters"}
_WITH_GAPS = ("workspace", "defaults", "steps", FINALLY)
_WORKSPACE_KEYS = frozenset({"folder", "path"})


@dataclass(frozen=True, slots=True)
class StepDocument:
    """One step. ``request``: a launch request as a document; with a ``template`` it lies over that."""

    name: str
    request: dict[str, Any]
    fan: FanOut
    after: dict[str, When] = field(default_factory=dict)
    template: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    retry: dict[str, Any] = field(default_factory=dict)
    is_finally: bool = False


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A run as it was asked for; ``defaults`` lie under templates of steps."""

    kind: str
    name: str
    steps: list[StepDocument]
    on_failure: OnFailure = OnFailure.CONTINUE
    at_once: int = 0
    workspace: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The elements of all steps."""
        return sum(step.fan.size for step in self.steps)


def run_document(said: Mapping[str, Any], parameters: Mapping[str, Any]) -> RunDocument:
    """Return the document in its parts, with its parameters filled in. Raises a UserError that names the key."""
    check_extent(said, MOST_VALUES)
    if said.get("version", 1) != 1:
        raise _wrong("version", Message("Version 1 is the only one there is."), "unknown-version")
    if "steps" not in said and said.get("kind", ARRAY) == ARRAY:
        return _array(said)
    _check_keys(said, TOP_KEYS, "")
    if said.get("kind", KIND) != KIND:
        raise _wrong("kind", Message("Use {kinds}.", kinds=f"{KIND}, {ARRAY}"))
    known = parameters_of(said.get("params"))
    answers = values_of(known, parameters)
    filled = _filled(said, known, answers)
    steps = _pipeline_steps(filled, answers, known)
    _check_graph(steps)
    if sum(step.fan.size for step in steps) > MOST_TASKS:
        raise _wrong("steps", Message("A run has at most {most} elements.", most=MOST_TASKS), "too-many-elements")
    return RunDocument(
        KIND,
        _text(said.get("name", ""), "name"),
        steps,
        _on_failure(said),
        number_of(said.get("at_once", 0), "at_once"),
        _workspace(filled.get("workspace")),
        {},
        {name: value for name, value in answers.items() if not known[name].is_secret},
    )


def _array(said: Mapping[str, Any]) -> RunDocument:
    _check_keys(said, ARRAY_KEYS, "")
    if said.get("type", BATCH) not in (name for name, kind in KINDS.items() if kind.has_result):
        raise _wrong("type", Message("Elements of an array are {types} sessions.", types=BATCH))
    if not {"array", "matrix", "foreach"} & set(said):
        text = Message("Write steps, or what to make elements of: array, matrix or foreach.")
        raise _wrong("array", text, "missing-elements")
    for variable, value in _mapping(said.get("environ"), "environ").items():
        if value is None:  # a copy of a document that was kept without its secrets
            text = Message("{name} has no value: write one, or leave the variable out.", name=str(variable)[:64])
            raise _wrong(f"environ.{str(variable)[:64]}", text, "missing-value")
    step = _step("array", {key: value for key, value in said.items() if key in STEP_KEYS}, {}, "")
    return RunDocument(ARRAY, _text(said.get("name", ""), "name"), [step], _on_failure(said))


def _pipeline_steps(
    said: Mapping[str, Any], answers: Mapping[str, Any], known: Mapping[str, Parameter]
) -> list[StepDocument]:
    steps, defaults = said.get("steps"), said.get("defaults") or {}
    if not isinstance(steps, Mapping) or not steps:
        raise _wrong("steps", Message("Write at least one step."), "missing-steps")
    if len(steps) > MOST_STEPS:
        raise _wrong("steps", Message("A run has at most {most} steps.", most=MOST_STEPS), "too-many-steps")
    if not isinstance(defaults, Mapping):
        raise _wrong("defaults", Message("Write keys with their values."))
    _check_keys(defaults, SESSION_KEYS, "defaults.")
    variables = {known[name].variable: value for name, value in answers.items()}
    usual = merged([_layer(defaults), _layer({"environ": _texts(variables)})]).document if variables else defaults
    found = [_step(str(name), one, usual, f"steps.{name}") for name, one in steps.items()]
    if (last := said.get(FINALLY)) is not None:
        if FINALLY in steps:
            raise _wrong(f"steps.{FINALLY}", Message("This name is taken by the last step of the run."))
        found.append(_step(FINALLY, last, usual, FINALLY))
    return found


def _step(name: str, said: Any, usual: Mapping[str, Any], where: str) -> StepDocument:
    if not NAME.fullmatch(name):
        raise _wrong(where, Message("A step is named in small letters, digits and - (32 at most): {name}", name=name))
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write keys with their values."))
    is_last = where == FINALLY
    prefix = f"{where}." if where else ""
    _check_keys(said, STEP_KEYS - {"after"} if is_last else STEP_KEYS, prefix)
    own = {key: value for key, value in said.items() if key in SESSION_KEYS}
    fan = fan_of(said, prefix)
    request = merged([_layer(usual), _layer(own)]).document | {"version": VERSION, "type": BATCH}
    template = _text(said.get("template", ""), f"{prefix}template")
    _check_request(request, bool(template), prefix)
    for variable in fan.variables:
        check_variable_name(variable, field=f"{prefix}matrix")
    return StepDocument(
        name,
        request,
        fan,
        _after(said.get("after"), f"{prefix}after"),
        template,
        _mapping(said.get("parameters"), f"{prefix}parameters"),
        retry_of(said.get("retry"), f"{prefix}retry", request.get("resources") or {}),
        is_last,
    )


def _check_request(request: Mapping[str, Any], has_template: bool, prefix: str) -> None:
    if not has_template:
        for key in ("image", "startup_command"):
            if not request.get(key):
                raise _wrong(f"{prefix}{key}", Message("This step needs {key}.", key=key), "missing-key")
    try:
        spec_of({"image": "python", **request})
    except UserError as error:
        raise UserError(error.message, field=f"{prefix}{error.field or ''}".rstrip("."), code=error.code) from None


def _after(said: Any, where: str) -> dict[str, When]:
    if said is None:
        return {}
    if isinstance(said, str):
        said = [said]
    if isinstance(said, list):
        said = {one if isinstance(one, str) else repr(one): When.SUCCESS.value for one in said}
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write the names of steps."))
    for name, when in said.items():
        if when not in list(When):
            raise _wrong(f"{where}.{name}", Message("Use {values}.", values=", ".join(When)))
    return {str(name): When(when) for name, when in said.items()}


def _check_graph(steps: list[StepDocument]) -> None:
    names = {step.name: step for step in steps if not step.is_finally}
    if sum(len(step.after) for step in steps) > MOST_EDGES:
        raise _wrong("steps", Message("A run has at most {most} edges.", most=MOST_EDGES), "too-many-edges")
    for step in steps:
        for on, when in step.after.items():
            where = f"steps.{step.name}.after.{on}"
            if on not in names:
                near = nearest_to(on, names) or ", ".join(list(names)[:5])
                raise _wrong(where, Message("Unknown step {name}: use {near}.", name=repr(on[:40]), near=near))
            if when == When.EACH and names[on].fan.indexes != step.fan.indexes:
                text = Message("Each element waits for its own: {name} must have the same elements.", name=on)
                raise _wrong(where, text, "different-elements")
    try:
        TopologicalSorter({step.name: set(step.after) for step in steps}).prepare()
    except CycleError as error:
        cycle = [str(one) for one in error.args[1]][:8]
        text = Message("Steps wait for each other: {cycle}.", cycle=" → ".join(reversed(cycle)))
        raise _wrong(f"steps.{cycle[0]}.after", text, "cycle") from None


def _filled(said: Mapping[str, Any], known: Mapping[str, Parameter], answers: Mapping[str, Any]) -> dict[str, Any]:
    parts = {key: value for key, value in said.items() if key in _WITH_GAPS and value is not None}
    check_gaps(parts, known)
    return dict(filled_in(parts, answers, "", known)[0].values) if known else parts


def _on_failure(said: Mapping[str, Any]) -> OnFailure:
    value = said.get("on_failure", OnFailure.CONTINUE.value)
    if value not in list(OnFailure):
        raise _wrong("on_failure", Message("Use {values}.", values=", ".join(OnFailure)))
    return OnFailure(value)


def _workspace(said: Any) -> dict[str, str]:
    found = _mapping(said, "workspace")
    _check_keys(found, _WORKSPACE_KEYS, "workspace.")
    if found and not found.get("folder"):
        raise _wrong("workspace.folder", Message("Name the folder for the output of steps."), "missing-key")
    return {key: _text(value, f"workspace.{key}") for key, value in found.items()}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in values.items() if value is not None}


def _mapping(said: Any, where: str) -> dict[str, Any]:
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise _wrong(where, Message("Write keys with their values."))
    return dict(said)


def _text(said: Any, where: str) -> str:
    if not isinstance(said, str) or len(said) > 200:
        raise _wrong(where, Message("Write a text of 200 characters at most."))
    return said


def _layer(values: Mapping[str, Any]) -> Layer:
    return Layer(Source("run"), values, {})


def _check_keys(said: Mapping[str, Any], known: Collection[str], prefix: str) -> None:
    for key in said:
        if key not in known:
            near = nearest_to(str(key), known) or ", ".join(sorted(known))
            text = Message("Unknown key {key}: use {near}.", key=repr(str(key)[:64]), near=near)
            raise _wrong(f"{prefix}{str(key)[:64]}", text, "unknown-field")


def _wrong(where: str, text: str, code: str = "invalid-document") -> UserError:
    return UserError(text, field=where, code=code)
