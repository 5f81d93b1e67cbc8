"""The five steps of the launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.base.core.errors import UserError
from backendai.portal.web.launch.field_table import AMOUNT, DATA, LAUNCH_FIELDS, NETWORK, RESOURCES, REVIEW, TYPE

_TITLES = {
    TYPE: _("Session type"),
    RESOURCES: _("Image & resource allocation"),
    DATA: _("Data & storage"),
    NETWORK: _("Network"),
    REVIEW: _("Confirm and launch"),
}


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """An entry in the list of steps."""

    number: int
    title: str | Promise
    is_wrong: bool


def step_of(field: str) -> int:
    """Return the number of the step that has this field."""
    return LAUNCH_FIELDS.get(field, AMOUNT).step


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
