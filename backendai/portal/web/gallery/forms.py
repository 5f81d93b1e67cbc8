"""Forms of templates: a new one, a version, its description, and its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.pipelines.documents.document import LARGEST
from backendai.domain.storage.models import Folder
from backendai.domain.templates.models import ICONS, Template
from backendai.domain.templates.parameters import Parameter, as_text, values_of
from backendai.domain.templates.services.publishing import TemplateDraft, places_of

PREFIX = "p."
_CODE = {"rows": 20, "class": "mono", "spellcheck": "false", "autocapitalize": "off"}
_MOST_OFFERED = 500


class VersionForm(forms.Form):
    """A template document, with a note about the changes."""

    text = forms.CharField(
        max_length=LARGEST,
        label=gettext_lazy("Document"),
        strip=False,
        widget=forms.Textarea(attrs=_CODE),
        help_text=gettext_lazy(
            "YAML or JSON: the keys of a launch request, with params and locked; or a pipeline with params and steps."
        ),
    )
    note = forms.CharField(max_length=255, required=False, label=gettext_lazy("What changed"))

    def refuse(self, error: UserError) -> None:
        """Add the error to its field; an error in the document to the document, with its line."""
        self.mark_line(error)
        self.add_error("note" if error.field == "note" else "text", in_words(error.message))

    def mark_line(self, error: UserError) -> None:
        """Make the page's script select the invalid line of the document."""
        if line := error.details.get("line"):
            self.fields["text"].widget.attrs["data-line"] = line


_ICON_NAMES = {
    "stack-2": gettext_lazy("Layers"),
    "terminal-2": gettext_lazy("Terminal"),
    "player-play": gettext_lazy("Play"),
    "cpu": gettext_lazy("Processor"),
    "chart-bar": gettext_lazy("Chart"),
    "database": gettext_lazy("Database"),
    "network": gettext_lazy("Network"),
    "package": gettext_lazy("Package"),
    "box": gettext_lazy("Box"),
    "tool": gettext_lazy("Tool"),
}
_ICONS = [(icon, _ICON_NAMES[icon]) for icon in ICONS]


class LookForm(forms.Form):
    """The title, description, icon and deprecation reason of a template."""

    title = forms.CharField(max_length=128, required=False, label=gettext_lazy("Title"))
    description = forms.CharField(max_length=500, required=False, label=gettext_lazy("Description"))
    icon = forms.ChoiceField(choices=_ICONS, label=gettext_lazy("Icon"))
    deprecated = forms.CharField(
        max_length=255,
        required=False,
        label=gettext_lazy("Deprecated because"),
        help_text=gettext_lazy("Shown with a warning. Leave empty while it may be used."),
    )


class TemplateForm(VersionForm):
    """A new template."""

    name = forms.CharField(
        max_length=64, label=gettext_lazy("Name"), help_text=gettext_lazy("Letters, digits, dot, dash and underscore.")
    )
    place = forms.ChoiceField(label=gettext_lazy("For whom"))
    title = forms.CharField(max_length=128, required=False, label=gettext_lazy("Title"))
    description = forms.CharField(max_length=500, required=False, label=gettext_lazy("Description"))
    icon = forms.ChoiceField(choices=_ICONS, label=gettext_lazy("Icon"))
    field_order = ["name", "place", "title", "description", "icon", "text"]

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["note"]
        choices = [(f"{scope}/{project}", _place_words(scope, name)) for scope, project, name in places_of(user)]
        self.fields["place"].choices = choices  # type: ignore[attr-defined]

    def wish(self) -> TemplateDraft:
        """Return the requested name, place and description of the template."""
        said = self.cleaned_data
        scope, _slash, project = said["place"].partition("/")
        return TemplateDraft(said["name"], scope, project, said["title"], said["description"], said["icon"])

    def refuse(self, error: UserError) -> None:
        """Add the error to its field; an error in the document to the document."""
        self.mark_line(error)
        names = {"scope": "place", "project": "place"}
        own = names.get(error.field or "", error.field or "")
        about_text = "line" in error.details or error.code == "too-large"
        self.add_error(
            "text" if about_text else own if own in self.fields else NON_FIELD_ERRORS, in_words(error.message)
        )


class ParametersForm(forms.Form):
    """The parameters of a document. With ``secrets`` False it leaves out secrets, which must not be in an address."""

    def __init__(
        self, *args: Any, parameters: Mapping[str, Parameter], user: User, secrets: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.parameters, self._secrets = parameters, secrets
        self.values: dict[str, Any] | None = None
        for name, one in parameters.items():
            if secrets or not one.is_secret:
                self.fields[f"{PREFIX}{name}"] = _field_of(one, parameters, user)

    @property
    def usual(self) -> list[forms.BoundField]:
        """The fields that are always shown."""
        return [bound for bound in self if not self._of(bound).advanced]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """The folded fields."""
        return [bound for bound in self if self._of(bound).advanced]

    @property
    def is_advanced_wrong(self) -> bool:
        """Whether a folded field has an error."""
        return any(bound.errors for bound in self.advanced)

    def _of(self, bound: forms.BoundField) -> Parameter:
        return self.parameters[bound.name.removeprefix(PREFIX)]

    def given(self) -> dict[str, Any]:
        """Return the entered values by parameter, without empty ones."""
        said = self.cleaned_data.items()
        return {name.removeprefix(PREFIX): value for name, value in said if value not in ("", None)}

    def clean(self) -> dict[str, Any]:
        """Validate the values as a launch does; adds each error to its parameter."""
        said = super().clean() or {}
        try:
            self.values = values_of(self.parameters, self.given(), secrets=self._secrets)
        except UserError as error:
            field = f"{PREFIX}{(error.field or '').removeprefix('parameters.')}"
            self.add_error(field if field in self.fields else NON_FIELD_ERRORS, in_words(error.message))
        return said

    def answers(self) -> dict[str, str]:
        """Return the entered values by the form's field names, for the address of the launcher."""
        return {name: as_text(value) for name, value in self.cleaned_data.items() if value not in ("", None)}


def _field_of(one: Parameter, parameters: Mapping[str, Parameter], user: User) -> forms.Field:
    """Return the form field of a parameter. The page's script hides it while its ``show_if`` does not match."""
    found = _plain_field(one, parameters, user)
    if one.show_if:
        wanted = {f"{PREFIX}{name}": as_text(value) for name, value in one.show_if.items()}
        found.widget.attrs["data-show-if"] = json.dumps(wanted)
    return found


def _plain_field(one: Parameter, parameters: Mapping[str, Parameter], user: User) -> forms.Field:
    usual: dict[str, Any] = {
        "label": one.label,
        "help_text": _help_of(one, parameters),
        "initial": None if one.default is None else as_text(one.default),
        "required": False,
    }
    if one.is_secret:
        secret = forms.PasswordInput(attrs={"autocomplete": "off"}, render_value=True)
        return forms.CharField(max_length=8192, strip=False, widget=secret, **usual)
    if one.type == "boolean":
        return forms.ChoiceField(choices=[("true", _("Yes")), ("false", _("No"))], **usual)
    choices = {"choice": list(one.choices), "image": None, "folder": None}.get(one.type, [])
    if choices is None:
        choices = _images(user) if one.type == "image" else _folders(user)
        choices = list(dict.fromkeys([*([as_text(one.default)] if one.default else []), *choices]))
    if choices or one.type in ("choice", "image", "folder"):
        empty = [] if one.default is not None else [("", _("Choose one"))]
        return forms.ChoiceField(choices=[*empty, *((each, each) for each in choices)], **usual)
    if one.type in ("integer", "number"):
        bounds = {"min": one.min, "max": one.max, "step": one.step or ("1" if one.type == "integer" else "any")}
        attributes = {name: value for name, value in bounds.items() if value is not None}
        return forms.CharField(widget=forms.NumberInput(attrs=attributes), **usual)
    return forms.CharField(max_length=4096, **usual)


def _help_of(one: Parameter, parameters: Mapping[str, Parameter]) -> str:
    parts = [one.help] if one.help else []
    if one.type == "size":
        parts.append(_("Such as 512m or 4g."))
    if one.type == "duration":
        parts.append(_("Such as 90s, 15m, 2h or 1d."))
    for other, value in one.show_if.items():
        told = {"name": parameters[other].label, "value": as_text(value)}
        parts.append(_("Used if %(name)s is %(value)s.") % told)
    return " ".join(parts)


def _images(user: User) -> list[str]:
    return list(
        Image.objects.usable_by(user).order_by("name").values_list("name", flat=True).distinct()[:_MOST_OFFERED]
    )


def _folders(user: User) -> list[str]:
    return list(Folder.objects.offered_to(user).order_by("name").values_list("name", flat=True)[:_MOST_OFFERED])


def _place_words(scope: str, name: str) -> str:
    match scope:
        case Template.Scope.PROJECT:
            return _("Project %(name)s") % {"name": name}
        case Template.Scope.DOMAIN:
            return _("Domain %(name)s") % {"name": name}
        case Template.Scope.PUBLIC:
            return _("Everyone")
    return _("Private: only me")
