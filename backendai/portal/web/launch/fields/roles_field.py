"""The roles of a cluster session in the launch form: a row for each role, with rare keys as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import LARGEST, read_document, written
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.services.requests.roles import MOST_ROLES, with_size
from backendai.domain.compute.spec import RoleSpec
from backendai.domain.compute.spec_document import VERSION, spec_of

PARTS = ("name", "count", "image", "cpu", "mem", "slots", "command", "more")
_PART_OF = {"count": "count", "image": "image", "startup_command": "command", "cpu": "cpu", "mem": "mem"}
_OWN = frozenset({"count", "image", "startup_command"})  # keys of a role that have a field
_EXAMPLES = {
    "name": "worker",
    "count": "1",
    "mem": "4g",
    "slots": "cuda.device=1",
    "more": "on_failure: restart\nafter: [main]\nready: {tcp: 8786, within: 60}\nenviron: {A: b}",
}
_Typed = dict[str, str]


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role as a row of the form; ``wrong`` has the errors by part."""

    typed: Mapping[str, str]
    wrong: Mapping[str, str] = field(default_factory=dict)

    def cells(self) -> list[tuple[str, str, str, str]]:
        """Return part, value, error and example of each cell."""
        return [(part, self.typed.get(part, ""), self.wrong.get(part, ""), _EXAMPLES.get(part, "")) for part in PARTS]


class RoleRows(forms.Widget):
    """Reads ``<name>.name``, ``<name>.count`` and so on, each sent once per row."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[_Typed]:
        """Return the typed rows, without empty ones at the end. Missing cells, as links may have them, are empty."""
        columns = [data.getlist(f"{name}.{part}") for part in PARTS]
        rows = [dict(zip(PARTS, texts, strict=True)) for texts in zip_longest(*columns, fillvalue="")]
        while rows and not any(text.strip() for text in rows[-1].values()):
            rows.pop()
        return rows

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form data has no such rows."""
        return f"{name}.name" not in data


class RolesField(forms.Field):
    """A field whose value is the roles of a ``SessionSpec``, by name."""

    widget = RoleRows

    def clean(self, value: list[_Typed]) -> dict[str, RoleSpec]:
        """Return the roles. Raises ValidationError with row (from 0) and part as parameters."""
        found: dict[str, Any] = {}
        for number, row in enumerate(value):
            if not any(text.strip() for text in row.values()):
                continue
            name = row["name"].strip()
            if not name or name in found:
                text = _("%(name)s is listed twice.") % {"name": name} if name else _("This role has no name.")
                raise _wrong(number, "name", text)
            found[name] = _role(number, row)
        try:
            spec = spec_of({"version": VERSION, "image": "", "roles": found}) if found else None
            if spec:
                with_size(spec)
        except UserError as error:
            raise placed(error, value) from None
        return dict(spec.roles) if spec else {}


def placed(error: UserError, rows: list[_Typed]) -> ValidationError:
    """Return the error as ValidationError with the row and part that it names, if it names them."""
    where = (error.field or "").removeprefix("roles").lstrip(".").split(".")
    number = next((place for place, row in enumerate(rows) if row["name"].strip() == where[0]), None)
    if number is None:
        return ValidationError(in_words(error.message), code=error.code)
    key = where[2] if where[1:2] == ["resources"] and len(where) > 2 else "".join(where[1:2])
    part = "slots" if where[1:2] == ["resources"] and key not in _PART_OF else _PART_OF.get(key, "more")
    return _wrong(number, part if len(where) > 1 else "name", str(in_words(error.message)))


def rows_to_show(value: list[_Typed] | None, wrong: Iterable[ValidationError] = ()) -> list[RoleRow]:
    """Return the entered rows with their errors, and an empty row."""
    found: dict[int, dict[str, str]] = {}
    for error in wrong:
        if (params := error.params or {}) and params.get("row") is not None:
            found.setdefault(params["row"], {})[params["part"]] = error.messages[0]
    rows = [RoleRow(typed, found.get(number, {})) for number, typed in enumerate(value or ())]
    return rows if len(rows) >= MOST_ROLES else [*rows, RoleRow({})]


def rows_of_roles(roles: Mapping[str, Any]) -> list[_Typed]:
    """Return the roles of a document as rows. Values of secrets are empty, as they must be typed again."""
    return [_row(name, role) for name, role in roles.items()]


def _row(name: str, role: Mapping[str, Any]) -> _Typed:
    amounts = {slot: str(amount) for slot, amount in (role.get("resources") or {}).items()}
    more = {key: value for key, value in role.items() if key not in _OWN | {"resources"}}
    if environ := more.get("environ"):
        more["environ"] = {variable: "" if text is None else text for variable, text in environ.items()}
    return {
        "name": name,
        "count": str(role.get("count", 1)),
        "image": role.get("image", ""),
        "cpu": amounts.pop("cpu", ""),
        "mem": amounts.pop("mem", ""),
        "slots": ", ".join(f"{slot}={amount}" for slot, amount in amounts.items()),
        "command": role.get("startup_command", ""),
        "more": written(more) if more else "",
    }


def _role(number: int, row: _Typed) -> dict[str, Any]:
    typed = {part: text.strip() for part, text in row.items()}
    if typed["count"] and not (typed["count"].isascii() and typed["count"].isdigit() and len(typed["count"]) < 6):
        raise _wrong(number, "count", _("Enter a whole number of kernels, such as 2."))
    role = _more(number, row["more"])
    role["count"] = int(typed["count"] or 1)
    amounts = {slot: _amount(typed[slot]) for slot in ("cpu", "mem") if typed[slot]} | _slots(number, typed["slots"])
    own = {"image": typed["image"], "resources": amounts, "startup_command": row["command"].replace("\r\n", "\n")}
    return role | {key: value for key, value in own.items() if value}


def _amount(text: str) -> int | str:
    """Return an amount as documents contain it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else text


def _slots(number: int, text: str) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        slot, equals, amount = (part.strip() for part in one.partition("="))
        if not (slot and equals and amount):
            raise _wrong(number, "slots", _("Write slots with their amounts, such as cuda.device=1"))
        found[slot] = _amount(amount)
    return found


def _more(number: int, text: str) -> dict[str, Any]:
    """Return the keys without a field of their own, parsed from the row's YAML. Raises ValidationError."""
    if not text.strip():
        return {}
    if len(text) > LARGEST:
        raise _wrong(number, "more", _("This is too long."))
    try:
        said = read_document(text.replace("\r\n", "\n")).value
    except UserError as error:
        raise _wrong(number, "more", str(in_words(error.message))) from None
    if twice := sorted(said.keys() & (_OWN | {"resources"})):
        raise _wrong(number, "more", _("%(keys)s has a field of its own.") % {"keys": ", ".join(twice)})
    return dict(said)


def _wrong(number: int, part: str, text: str) -> ValidationError:
    return ValidationError("%(text)s", code="invalid-role", params={"row": number, "part": part, "text": text})
