"""Uses rules of the services as checks of form fields. So the form shows all errors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django import forms
from django.core.exceptions import ValidationError

from backendai.base.core.errors import UserError

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
