"""The five steps of the launcher, and the step of each field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.base.core.errors import UserError

TYPE, RESOURCES, DATA, NETWORK, REVIEW = range(1, 6)
_TITLES = {
    TYPE: _("Session type"),
    RESOURCES: _("Image & resource allocation"),
    DATA: _("Data & storage"),
    NETWORK: _("Network"),
    REVIEW: _("Confirm and launch"),
}
_STEP_OF = {
    "session_type": TYPE,
    "name": TYPE,
    "startup_command": TYPE,
    "files": TYPE,
    "array_size": TYPE,
    "matrix": TYPE,
    "retries": TYPE,
    "starts_at": TYPE,
    "batch_timeout": TYPE,
    "priority": TYPE,
    "retry_on_agent_loss": TYPE,
    "depends_on": TYPE,
    "depends_when": TYPE,
    "owner": TYPE,
    "access_key": TYPE,
    "mounts": DATA,
    "start_in": DATA,
    "preopen_ports": NETWORK,
    "replaces": REVIEW,
    "__all__": REVIEW,
}


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """An entry in the list of steps."""

    number: int
    title: str | Promise
    is_wrong: bool


def step_of(field: str) -> int:
    """Return the number of the step that has this field."""
    return _STEP_OF.get(field, RESOURCES)


def steps_of(wrong: Iterable[str]) -> list[LaunchStep]:
    """Return all steps; those with one of the ``wrong`` fields are marked."""
    marked = {step_of(field) for field in wrong}
    return [LaunchStep(number, title, number in marked) for number, title in _TITLES.items()]


def step_named(text: str, *, usual: int = TYPE) -> int:
    """Return the step that an address names, or ``usual`` for an invalid one."""
    return int(text) if text in map(str, _TITLES) else usual


_Value = TypeVar("_Value")


def checked(check: Callable[[_Value], _Value], value: _Value) -> _Value:
    """Return the result of the rule for this value; raises its UserError as ValidationError."""
    try:
        return check(value)
    except UserError as error:
        raise ValidationError(error.message, code=error.code) from error


def ignore_errors(form: forms.Form, *names: str) -> None:
    """Drop the errors and values of wrong fields that do not apply to the chosen options."""
    for name in names:
        if form.errors.pop(name, None):
            form.cleaned_data[name] = None
