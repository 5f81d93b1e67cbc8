"""Arguments of a service that users can set. A label of the image lists them: ``--logdir=logs --tag=``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from backendai.base.core.errors import UserError

MOST_ARGUMENTS, LONGEST_VALUE = 16, 500
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9._-]{0,40}\Z")


def label_of(service: str) -> str:
    """Return the name of the label that lists the arguments of a service."""
    return f"ai.backend.app.{service}.arguments"


def allowed_arguments(labels: Mapping[str, str], service: str) -> dict[str, str]:
    """Return the arguments that users can set, each with its default value. Entries other than ``--name=value`` are
    left out; a label with unbalanced quotes allows none."""
    try:
        words = shlex.split(str(labels.get(label_of(service), "")))
    except ValueError:
        return {}
    pairs = (word.partition("=") for word in words[:MOST_ARGUMENTS])
    return {name: value for name, equals, value in pairs if equals and _FLAG.match(name) and is_value(value)}


def is_value(text: str) -> bool:
    """Return whether the text is allowed as the value of an argument."""
    return len(text) <= LONGEST_VALUE and text.isprintable()


def check_values(values: Mapping[str, str], allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the values that differ from the image's defaults, by argument. Raises UserError for an invalid value, and
    for an argument that the image does not allow."""
    for name, value in values.items():
        field = f"arguments.{name}"[:64]
        if name not in allowed:
            raise UserError(
                "The image allows no argument {name}; it allows {allowed}.",
                name=repr(name[:40]),
                allowed=sorted(allowed),
                field=field,
                code="unknown-argument",
            )
        if not is_value(value):
            raise UserError(
                "The value of {name} has at most {limit} characters, all of them printable ({number} given).",
                name=name,
                limit=LONGEST_VALUE,
                number=len(value),
                field=field,
                code="invalid-argument",
            )
    return {name: value for name, value in values.items() if value != allowed[name]}


def command_arguments(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command-line arguments ``name=value``. Arguments with an empty value are left out."""
    return tuple(f"{name}={value}" for name, value in values.items() if value)
