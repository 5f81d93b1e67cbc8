"""Labels and notes in forms and on pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from backendai.base.core.errors import UserError
from backendai.base.core.labels import LONGEST_NOTE, LONGEST_TEXT, check_note, label_lines, labels_in
from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.compute.models import ComputeSession

_PLAIN = {"spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}


class LabelsField(forms.CharField):
    """A field whose value is labels by key, from lines such as ``experiment=baseline``."""

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return "\n".join(label_lines(value)) if isinstance(value, Mapping) else value

    def clean(self, value: Any) -> Any:
        """Return the labels. Raises ValidationError for an invalid one."""
        try:
            return labels_in(super().clean(value))
        except UserError as error:
            raise ValidationError(error.message, code=error.code) from None


class LabelFields(forms.Form):
    """The labels and the note of a session."""

    labels = LabelsField(
        required=False,
        max_length=LONGEST_TEXT,
        label=_("Labels"),
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "placeholder": "experiment=baseline", **_PLAIN}),
        help_text=_("One key=value per line, at most 16. Programs read them as $BACKENDAI_LABEL_EXPERIMENT and so on."),
    )
    note = forms.CharField(
        required=False,
        max_length=2 * LONGEST_NOTE,
        label=_("Note"),
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("At most 500 characters."),
    )

    def clean_note(self) -> str:
        """Return the note. Raises ValidationError for an invalid one."""
        try:
            return check_note(self.cleaned_data["note"])
        except UserError as error:
            raise ValidationError(error.message, code=error.code) from None


def label_links(session: ComputeSession) -> SafeString:
    """Return the session's labels, each a link to the list of sessions that have it, live or ended as this one."""
    view = {"view": "finished"} if session.is_terminal else {}
    lines = label_lines(session.labels)
    links = ((f"{reverse('web:sessions')}?{urlencode(view | {'label': line})}", line) for line in lines)
    return format_html_join(" ", '<a class="chip" href="{}"><bdi>{}</bdi></a>', links)
