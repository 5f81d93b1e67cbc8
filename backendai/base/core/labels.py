"""Labels (``key=value``) and notes, with which people find their work again: the only rules for both."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import is_hidden

MOST_LABELS, LONGEST_KEY, LONGEST_VALUE, LONGEST_NOTE = 16, 63, 128, 500
LONGEST_TEXT = MOST_LABELS * (LONGEST_KEY + LONGEST_VALUE + 3)  # of all labels, a line each
_RESERVED = "backendai/"
_KEY = re.compile(r"[a-z0-9](?:[a-z0-9._/-]*[a-z0-9])?\Z")
_NOT_IN_A_NOTE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels sorted by key, values without surrounding spaces. Raises UserError for an invalid one."""
    if len(labels) > MOST_LABELS:
        raise _wrong(Message("Use at most {most} labels ({number} given).", most=MOST_LABELS, number=len(labels)))
    return {check_label_key(key): _value(key, labels[key].strip()) for key in sorted(labels)}


def check_label_key(key: str, *, field: str = "labels") -> str:
    """Return the key if people may set it. Else raises UserError."""
    if len(key) > LONGEST_KEY or not _KEY.match(key):
        text = Message(
            "{key} is not a label: use 1 to {most} of a–z, digits, dot, dash, underscore and slash, with a letter or a "
            "digit at both ends.",
            key=repr(key[:LONGEST_KEY]),
            most=LONGEST_KEY,
        )
        raise _wrong(text, field=field)
    if key.startswith(_RESERVED):
        text = Message("{key} is reserved for the platform: begin the label differently.", key=key)
        raise _wrong(text, field=field, code="reserved-label")
    return key


def check_label_keys(keys: Sequence[str], *, field: str) -> list[str]:
    """Return the keys sorted, each once. Raises UserError for an invalid one."""
    if not isinstance(keys, list) or len(keys) > MOST_LABELS or not all(isinstance(key, str) for key in keys):
        raise _wrong(Message("Write a list of at most {most} labels.", most=MOST_LABELS), field=field)
    return sorted({check_label_key(key, field=field) for key in keys})


def check_note(note: str) -> str:
    """Return the note without surrounding spaces, with Unix line ends. Raises UserError for an invalid one."""
    text = "\n".join(note.strip().splitlines())
    if len(text) > LONGEST_NOTE:
        raise UserError(
            "Use at most {longest} characters ({number} given).",
            longest=LONGEST_NOTE,
            number=len(text),
            field="note",
            code="invalid-note",
        )
    if any(unicodedata.category(letter) in _NOT_IN_A_NOTE for letter in text.replace("\n", "").replace("\t", "")):
        raise UserError("Write text without control characters.", field="note", code="invalid-note")
    return text


def labels_in(text: str) -> dict[str, str]:
    """Return the labels in lines such as ``key=value``. Raises UserError, also for a key in two lines."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, sign, value = (part.strip() for part in line.partition("="))
        if not sign and key:
            raise _wrong(Message("Line {number}: write key=value, such as experiment=baseline.", number=number))
        if key in found:
            raise _wrong(Message("Line {number}: {key} is set twice.", number=number, key=key[:LONGEST_KEY]))
        if sign:
            found[key] = value
    return check_labels(found)


def label_lines(labels: Mapping[str, str]) -> list[str]:
    """Return ``key=value`` of each label."""
    return [f"{key}={value}" for key, value in sorted(labels.items())]


def label_variables(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with which programs read the labels."""
    return {f"BACKENDAI_LABEL_{re.sub('[^A-Z0-9]', '_', key.upper())}": labels[key] for key in sorted(labels)}


def searched_label(text: str) -> tuple[str, str | None] | None:
    """Return the key and the value in ``key=value``; the value is None for ``key`` alone. None: no label has this
    key."""
    key, sign, value = (part.strip() for part in text.partition("="))
    return (key, value if sign else None) if _KEY.match(key) else None


def check_required(labels: Mapping[str, str], required: Iterable[str]) -> None:
    """Raise UserError with the names of required labels that are missing or empty."""
    if missing := sorted({key for key in required if not labels.get(key)}):
        raise _wrong(Message("Add the labels that a policy requires: {keys}.", keys=missing), code="missing-label")


def _value(key: str, value: str) -> str:
    if len(value) > LONGEST_VALUE:
        text = Message(
            "The value of {key} may have at most {most} characters ({number} given).",
            key=key,
            most=LONGEST_VALUE,
            number=len(value),
        )
        raise _wrong(text)
    if not value.isprintable() or any(map(is_hidden, value)):
        text = Message("The value of {key} has an invisible character: delete it, or type the value again.", key=key)
        raise _wrong(text)
    return value


def _wrong(text: Message, *, field: str = "labels", code: str = "invalid-label") -> UserError:
    return UserError(text, field=field, code=code)
