"""Rules of the services as a form's own checks, so that all that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django import forms
from django.core.exceptions import ValidationError

from backendai.core.errors import UserError

_Value = TypeVar("_Value")


def checked(check: Callable[[_Value], _Value], value: _Value) -> _Value:
    """Return what the rule returns for this value; its UserError becomes the field's."""
    try:
        return check(value)
    except UserError as error:
        raise ValidationError(error.message, code=error.code) from error


def ignore_errors(form: forms.Form, *names: str) -> None:
    """Drop the errors and values of wrong fields that do not apply to the chosen options."""
    for name in names:
        if form.errors.pop(name, None):
            form.cleaned_data[name] = None
