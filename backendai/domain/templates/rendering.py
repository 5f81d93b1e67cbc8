"""From a template to a launch request: values filled in, and layers put over one another. Pure; no database.

Weakest first: the resource group's defaults, the template, its parameters, the caller. Maps are merged by key, lists
are replaced, and null removes. Each field of the result knows where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import Slots
from backendai.domain.templates.parameters import Parameter, as_text

GAP = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_PARAMETER = re.compile(r"\s*params\.([a-z][a-z0-9_]*)\s*", re.ASCII)
GROUP, TEMPLATE, PARAMETER, CALLER = "group", "template", "parameter", "caller"
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from; ``name``: the parameters, or the template with its version."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one origin. ``own``: other sources of single paths."""

    source: Source
    values: Mapping[str, Any]
    own: Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A request as a document, the source of each of its fields by path, and which variables wait for a secret."""

    document: dict[str, Any]
    sources: dict[str, Source]


def merged(layers: Sequence[Layer]) -> Rendered:
    """Return the layers put over one another, the weakest first."""
    document: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for layer in layers:
        _put(document, layer.values, layer, sources, "")
    return Rendered(document, {path: sources[path] for path in sorted(sources)})


def filled_in(
    document: Mapping[str, Any], values: Mapping[str, Any], name: str, parameters: Mapping[str, Parameter]
) -> list[Layer]:
    """Return the layers of a template: what it says with the values in its gaps, and the variables for its commands."""
    own: dict[str, Source] = {}

    def fill(path: str, text: str) -> Any:
        named = _named_in(text)
        if not named:
            return text
        own[path] = Source(PARAMETER, ", ".join(dict.fromkeys(named)))
        if len(named) == 1 and GAP.fullmatch(text.strip()) and text.strip().count("${{") == 1:
            return values[named[0]]
        if any(values[one] is None for one in named):
            return None
        return GAP.sub(lambda found: as_text(values[_name_of(found)]), text)

    said = _filled(document, fill, "")
    variables = {one.variable: _variable(values[one.name]) for one in parameters.values()}
    sources = {f"environ.{one.variable}": Source(PARAMETER, one.name) for one in parameters.values()}
    layers = [Layer(Source(TEMPLATE, name), said, own)]
    if variables:
        layers.append(Layer(Source(PARAMETER), {"environ": variables}, sources))
    return layers


def is_gap(value: object) -> bool:
    """Return whether the value is one gap and nothing else."""
    return isinstance(value, str) and value.count("${{") == 1 and GAP.fullmatch(value) is not None


def check_gaps(document: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Refuse gaps in keys, in what runs as a program, and those of parameters that there are not."""
    for path, key, value in _texts(document, ""):
        if "${{" in key:
            raise _wrong(path, Message("A key has no gaps: fill values only."))
        if "${{" not in value:
            continue
        if path.endswith("startup_command") or path.endswith(".content"):
            example = next((f'"${one.variable}"' for one in parameters.values()), '"$PARAM_NAME"')
            text = Message(
                "A parameter is not written into a command: read its variable, such as {example}.", example=example
            )
            raise _wrong(path, text, "parameter-in-command")
        for name in _named_in(value):
            if name not in parameters:
                known = ", ".join(parameters) or "none"
                raise _wrong(
                    path, Message("Unknown parameter {name}. Known parameters: {known}.", name=name, known=known)
                )


def check_locks(locked: Sequence[str], template: Mapping[str, Any], asked: Mapping[str, Any], name: str) -> None:
    """Refuse a request that has another value than the template where that is locked."""
    for path in locked:
        if not _alike(path, _at(template, path), _at(asked, path)):
            text = Message("{path} is fixed by template {name}: leave it as it is.", path=path, name=name)
            raise UserError(text, field=path, code="locked-by-template")


def _put(into: dict[str, Any], values: Mapping[str, Any], layer: Layer, sources: dict[str, Source], above: str) -> None:
    for key, value in values.items():
        path = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            if not isinstance(into.get(key), dict):
                _forget(sources, path)
                into[key] = {}
            _put(into[key], value, layer, sources, path)
            continue
        _forget(sources, path)
        if value is None and not _waits(path, layer):
            into.pop(key, None)
        else:
            into[key] = as_text(value) if value is not None and _is_variable(path) else value
            sources[path] = layer.own.get(path, layer.source)
            sources.update({each: one for each, one in layer.own.items() if each.startswith(f"{path}.")})


def _waits(path: str, layer: Layer) -> bool:
    """Return whether null stands for a secret that is still to be typed."""
    return path in layer.own and _is_variable(path)


def _is_variable(path: str) -> bool:
    return path.startswith("environ.") or (path.startswith("roles.") and ".environ." in path)


def _forget(sources: dict[str, Source], path: str) -> None:
    for each in [one for one in sources if one == path or one.startswith(f"{path}.")]:
        del sources[each]


def _filled(value: Any, fill: Callable[[str, str], Any], path: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each, fill, f"{path}.{key}" if path else str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, fill, f"{path}.{number}") for number, each in enumerate(value)]
    return fill(path, value) if isinstance(value, str) else value


def _texts(value: Any, path: str, key: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{path}.{number}")
    else:
        yield path, key, value if isinstance(value, str) else ""


def _named_in(text: str) -> list[str]:
    if "${{" not in text:
        return []
    if text.count("${{") != len(GAP.findall(text)):
        raise UserError("A gap is not closed: write {form}.", form="${{ params.name }}", code="invalid-document")
    return [_name_of(found) for found in GAP.finditer(text)]


def _name_of(gap: re.Match[str]) -> str:
    found = _PARAMETER.fullmatch(gap[1])
    if found is None:
        said = repr(gap[1].strip()[:64])
        raise UserError(
            "{said} is not known: write {form}.", said=said, form="${{ params.name }}", code="invalid-document"
        )
    return found[1]


def _variable(value: Any) -> str | None:
    return None if value is None else as_text(value)


def _at(document: Any, path: str) -> Any:
    """Return what stands at a path; a key may have dots itself (``cuda.shares``)."""
    if not path:
        return document
    if not isinstance(document, Mapping):
        return _MISSING
    for key in document:
        if path == key or path.startswith(f"{key}."):
            return _at(document[key], path[len(key) + 1 :])
    return _MISSING


def _alike(path: str, one: Any, other: Any) -> bool:
    one, other = (None if value in (_MISSING, "", [], {}) else value for value in (one, other))
    if one == other or one is None or other is None:
        return bool(one == other)
    slot = path.rpartition("resources.")[2] if "resources." in path else ""
    try:
        if path.endswith("resources"):
            return Slots.parse(one) == Slots.parse(other)
        if slot:
            return Slots.parse({slot: one}) == Slots.parse({slot: other})
    except UserError:
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = one.keys() | other.keys()
        return all(_alike(f"{path}.{key}", one.get(key, _MISSING), other.get(key, _MISSING)) for key in keys)
    return as_text(one) == as_text(other) if not isinstance(one, Mapping | list) else False


def _wrong(path: str, text: str, code: str = "invalid-document") -> UserError:
    return UserError(text, field=path, code=code)
