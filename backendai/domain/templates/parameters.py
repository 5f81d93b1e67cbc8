"""Parameters of templates: what a template asks for, and whether an answer will do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backendai.base.core.durations import seconds_in
from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.nearest import nearest_to
from backendai.base.core.secret_names import looks_secret
from backendai.base.core.slots import parse_size

TYPES = ("text", "integer", "number", "boolean", "choice", "size", "duration", "image", "folder", "secret")
MOST = 32
_NUMERIC = frozenset({"integer", "number", "size", "duration"})
_KEYS = frozenset(
    {"type", "title", "help", "default", "choices", "min", "max", "step", "format", "show_if", "advanced"}
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_FORMATS = {
    "name": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII),
        Message("letters, digits, dots, dashes, underscores"),
    ),
    "path": (re.compile(r"[^\0\n]+"), Message("a path in one line")),
    "url": (re.compile(r"https?://[^\s]+"), Message("an address that begins with http:// or https://")),
}
_LONGEST = {"secret": 8192, "text": 4096}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One question. ``default`` None: it has to be answered. ``show_if``: other parameters with the values that make it
    asked; ``step`` counts from ``min``, else from 0."""

    name: str
    type: str = "text"
    title: str = ""
    help: str = ""
    default: Any = None
    choices: list[str] = field(default_factory=list)
    min: float | None = None
    max: float | None = None
    step: float | None = None
    format: str = ""
    show_if: Mapping[str, Any] = field(default_factory=dict)
    advanced: bool = False

    @property
    def variable(self) -> str:
        """The environment variable in which commands find its value."""
        return f"PARAM_{self.name.upper()}"

    @property
    def label(self) -> str:
        """What a form calls it."""
        return self.title or self.name

    @property
    def is_secret(self) -> bool:
        """Whether nothing of its value may be kept or shown."""
        return self.type == "secret"


def parameters_of(said: object) -> dict[str, Parameter]:
    """Return the parameters that a document declares. Raises a UserError that names the key."""
    if said is None:
        return {}
    if not isinstance(said, Mapping) or len(said) > MOST:
        raise UserError("Write at most {most} parameters with their keys.", most=MOST, field="params", code="too-many")
    found = {str(name): _parameter(str(name), keys) for name, keys in said.items()}
    for one in found.values():
        for other in one.show_if:
            if other not in found or other == one.name:
                text = Message("Parameter {other} not found.", other=repr(str(other)[:32]))
                raise _wrong(f"params.{one.name}.show_if", text)
    return found


def values_of(parameters: Mapping[str, Parameter], given: Mapping[str, Any], *, secrets: bool = True) -> dict[str, Any]:
    """Return the value of each parameter, by the answers and defaults. ``secrets`` False: those need no answer, and are
    None. Raises a UserError that names the parameter."""
    for name in given:
        if name not in parameters:
            near = nearest_to(str(name), parameters) or ", ".join(parameters) or "none"
            text = Message("The template has no parameter {name}: use {near}.", name=repr(str(name)[:32]), near=near)
            raise UserError(text, field=f"parameters.{str(name)[:32]}", code="unknown-parameter")
    found: dict[str, Any] = {}
    for name, one in parameters.items():
        answer = given.get(name)
        if not _is_asked(one, given, parameters):
            found[name] = one.default if one.default is not None else ""
        elif answer is None or (answer == "" and one.type != "text"):
            found[name] = _without_answer(one, secrets)
        else:
            found[name] = checked(one, answer)
    return found


def checked(one: Parameter, answer: Any, *, where: str = "") -> Any:
    """Return the answer as the parameter's type has it; raises a UserError that says what is allowed."""
    where = where or f"parameters.{one.name}"
    if isinstance(answer, Mapping | list):
        raise _wrong(where, Message("Write one value."), "invalid-parameter")
    match one.type:
        case "integer" | "number":
            return _within(one, _number(one, answer, where), where)
        case "boolean":
            return _boolean(answer, where)
        case "choice":
            return _choice(one, answer, where)
        case "size":
            _within(one, parse_size(answer, field=where), where)
            return str(answer)
        case "duration":
            return _within(one, seconds_of(answer, where), where)
    return _text(one, answer, where)


def as_text(value: Any) -> str:
    """Return a value as it stands in a text or an environment variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def seconds_of(answer: Any, where: str) -> int:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``2h`` or ``1d``."""
    seconds = seconds_in(answer)
    if seconds is None:
        raise _wrong(where, Message("This is not a duration: use 90s, 15m, 2h or 1d."), "invalid-parameter")
    return seconds


def _parameter(name: str, keys: object) -> Parameter:
    where = f"params.{name[:32]}"
    if not _NAME.fullmatch(name):
        raise _wrong(where, Message("Name it with a–z, 0–9 and _: 32 characters at most, a letter first."))
    if not isinstance(keys, Mapping):
        raise _wrong(where, Message("Write keys with their values, such as type: text."))
    for key in keys:
        if key not in _KEYS:
            near = nearest_to(str(key), _KEYS) or ", ".join(sorted(_KEYS))
            text = Message("A parameter has no key {key}: use {near}.", key=repr(str(key)[:64]), near=near)
            raise UserError(text, field=f"{where}.{str(key)[:64]}", code="unknown-field")
    one = _shaped(name, keys, where)
    if one.type not in TYPES:
        text = Message("Unknown type {type}: use {types}.", type=repr(one.type[:32]), types=", ".join(TYPES))
        raise _wrong(f"{where}.type", text)
    _check_bounds(one, where)
    if one.is_secret:
        _check_secret(one, where)
    default = None if one.default is None else checked(one, one.default, where=f"{where}.default")
    return Parameter(**{key: getattr(one, key) for key in ("name", *_KEYS)} | {"default": default})


def _shaped(name: str, keys: Mapping[str, Any], where: str) -> Parameter:
    values: dict[str, Any] = {}
    for key, value in keys.items():
        match key:
            case "type" | "title" | "help" | "format":
                wrong = not isinstance(value, str) or len(value) > 500
            case "advanced":
                wrong = not isinstance(value, bool)
            case "show_if":
                wrong = not isinstance(value, Mapping) or any(isinstance(one, Mapping | list) for one in value.values())
            case "choices":
                plain = isinstance(value, list) and not any(isinstance(one, Mapping | list | None) for one in value)
                wrong = not plain or not 1 <= len(value) <= 100
                value = value if wrong else [as_text(one) for one in value]
            case "min" | "max" | "step":
                wrong, value = _bound(keys.get("type"), value, f"{where}.{key}")
            case _:
                wrong = False
        if wrong:
            raise _wrong(f"{where}.{key}", Message("This value cannot be used here."))
        values[key] = value
    return Parameter(name, **values)


def _bound(kind: object, value: Any, where: str) -> tuple[bool, Any]:
    if kind == "size":
        return False, parse_size(value, field=where)
    if kind == "duration":
        return False, seconds_of(value, where)
    return isinstance(value, bool) or not isinstance(value, int | float), value


def _check_bounds(one: Parameter, where: str) -> None:
    if (one.min, one.max, one.step) != (None, None, None) and one.type not in _NUMERIC:
        raise _wrong(f"{where}.min", Message("Only numbers, sizes and durations have min, max and step."))
    if one.min is not None and one.max is not None and one.min > one.max:
        raise _wrong(f"{where}.max", Message("max is less than min."))
    if one.step is not None and one.step <= 0:
        raise _wrong(f"{where}.step", Message("step is more than 0."))
    if (one.type == "choice") != bool(one.choices):
        raise _wrong(f"{where}.choices", Message("Type choice, and no other, has choices."))
    if one.format and (one.type != "text" or one.format not in _FORMATS):
        raise _wrong(f"{where}.format", Message("A text may have the format {formats}.", formats=", ".join(_FORMATS)))


def _check_secret(one: Parameter, where: str) -> None:
    """Refuse names from which histories and addresses would not know that the value is secret."""
    if not looks_secret(one.variable):
        text = Message(
            "Let the name of a secret end with _secret, _token, _key or _password: such values are not kept."
        )
        raise _wrong(where, text)
    if one.default is not None:
        raise _wrong(f"{where}.default", Message("A secret has no default."))


def _is_asked(one: Parameter, given: Mapping[str, Any], all_: Mapping[str, Parameter]) -> bool:
    """Return whether all that it depends on have the values that make it asked."""
    return all(
        as_text(given.get(other, all_[other].default)) == as_text(wanted) for other, wanted in one.show_if.items()
    )


def _without_answer(one: Parameter, secrets: bool) -> Any:
    if one.is_secret and not secrets:
        return None
    if one.default is None:
        text = Message("Parameter {name} has no value: write one.", name=one.name)
        raise UserError(text, field=f"parameters.{one.name}", code="missing-parameter")
    return one.default


def _number(one: Parameter, answer: Any, where: str) -> int | float:
    try:
        if isinstance(answer, bool) or len(str(answer)) > 32:
            raise ValueError
        number = int(str(answer)) if one.type == "integer" else float(answer)
    except (ValueError, TypeError):
        text = Message("Write a whole number.") if one.type == "integer" else Message("Write a number.")
        raise _wrong(where, text, "invalid-parameter") from None
    if not math.isfinite(number):
        raise _wrong(where, Message("Write a number."), "invalid-parameter")
    return number


def _within(one: Parameter, number: Any, where: str) -> Any:
    if one.min is not None and number < one.min:
        raise _wrong(where, Message("Use at least {least}.", least=one.min), "invalid-parameter")
    if one.max is not None and number > one.max:
        raise _wrong(where, Message("Use at most {most}.", most=one.max), "invalid-parameter")
    if one.step is not None:
        steps = (number - (one.min or 0)) / one.step
        if abs(steps - round(steps)) > 1e-9 * max(1.0, abs(steps)):
            raise _wrong(where, Message("Use steps of {step}.", step=one.step), "invalid-parameter")
    return number


def _boolean(answer: Any, where: str) -> bool:
    text = as_text(answer).lower()
    if text not in ("true", "false", "on", "off"):
        raise _wrong(where, Message("Use true or false."), "invalid-parameter")
    return text in ("true", "on")


def _choice(one: Parameter, answer: Any, where: str) -> str:
    text = as_text(answer)
    if text not in one.choices:
        raise _wrong(where, Message("Use one of: {choices}.", choices=", ".join(one.choices)), "invalid-parameter")
    return text


def _text(one: Parameter, answer: Any, where: str) -> str:
    text, longest = as_text(answer), _LONGEST.get(one.type, 255)
    if "\0" in text:
        raise _wrong(where, Message("A NUL character is not allowed: leave it out."), "invalid-parameter")
    if len(text) > longest:
        raise _wrong(where, Message("Use at most {longest} characters.", longest=longest), "invalid-parameter")
    if one.format and text and not _FORMATS[one.format][0].fullmatch(text):
        raise _wrong(where, Message("Use {allowed}.", allowed=_FORMATS[one.format][1]), "invalid-parameter")
    return text


def _wrong(where: str, text: str, code: str = "invalid-document") -> UserError:
    return UserError(text, field=where, code=code)
