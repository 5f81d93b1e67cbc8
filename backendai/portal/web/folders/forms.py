"""Forms of folders. The services validate the values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.core.slots import format_size, parse_size
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Membership, Project, User
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.querysets import MANAGE
from backendai.domain.storage.services import create_folder
from backendai.domain.storage.status import Rights, Usage

_NAME_HELP = _l("1 to 64 letters, digits, '.', '_' or '-'. Sessions mount it under this name.")
_LIMIT_HELP = _l("For example 500m, 20g or 1t. Empty: no limit of its own.")
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class SizeField(forms.CharField):
    """A field for a size with a unit. Its value is bytes, or None if it is empty."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=40, widget=forms.TextInput(_PLAIN), **kwargs)

    def clean(self, value: Any) -> int | None:
        """Return the size in bytes, or None. Raises ValidationError."""
        text = str(super().clean(value)).replace(" ", "").replace("\N{NO-BREAK SPACE}", "")
        try:
            return parse_size(text, field="limit_bytes", typed=True) if text else None
        except UserError as error:
            raise forms.ValidationError(in_words(error.message)) from error

    def prepare_value(self, value: Any) -> Any:
        """Return the bytes with a unit, or unchanged if that would round them."""
        if not isinstance(value, int):
            return value
        text = format_size(value)
        return text if parse_size(text.replace(" ", ""), field="limit_bytes") == value else value


class _TargetForm(forms.Form):
    """A new folder: its name, limit and owner."""

    name = forms.CharField(label=_l("Name"), max_length=64, help_text=_NAME_HELP, widget=forms.TextInput(_PLAIN))
    project = forms.ModelChoiceField(
        Project.objects.none(), required=False, label=_l("Belongs to"), empty_label=_l("yourself")
    )
    limit_bytes = SizeField(label=_l("Limit"), help_text=_LIMIT_HELP)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        projects = Project.objects.managed_by(user).filter(is_active=True).order_by("name")
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]
        if not projects.exists():
            del self.fields["project"]


class CreateForm(_TargetForm):
    """A new folder."""

    host = forms.ModelChoiceField(StorageHost.objects.none(), label=_l("Storage host"), empty_label=None)
    usage = forms.ChoiceField(label=_l("For"), choices=Usage.choices, initial=Usage.GENERAL)
    member_rights = forms.ChoiceField(
        label=_l("Members of the project"),
        choices=Rights.choices,
        initial=Rights.EDIT,
        required=False,
        help_text=_l("Applies to a folder that belongs to a project."),
    )
    field_order = ("name", "project", "member_rights", "host", "usage", "limit_bytes")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        hosts = StorageHost.objects.filter(is_enabled=True).order_by("-is_default", "name")
        self.fields["host"].queryset = hosts  # type: ignore[attr-defined]
        self.fields["host"].initial = hosts.first()
        if "project" not in self.fields:
            del self.fields["member_rights"]
        else:
            self.fields["project"].widget.attrs["data-shows-next"] = True
        translate_choices(self)

    def create(self, user: User, now: datetime) -> Folder:
        """Create the folder of a valid form, and return it. Raises UserError that names the field."""
        data = self.cleaned_data
        more = {"member_rights": data["member_rights"]} if data.get("member_rights") else {}
        return create_folder(
            user,
            name=data["name"],
            host=data["host"],
            project=data.get("project"),
            usage=data["usage"],
            limit_bytes=data["limit_bytes"],
            now=now,
            **more,
        )


class CloneForm(_TargetForm):
    """A clone of a folder, on the same storage host or on another one."""

    host = forms.ModelChoiceField(StorageHost.objects.none(), label=_l("Storage host"), empty_label=None)

    def __init__(self, *args: Any, user: User, folder: Folder, **kwargs: Any) -> None:
        super().__init__(*args, user=user, **kwargs)
        hosts = StorageHost.objects.filter(is_enabled=True).order_by("name")
        self.fields["host"].queryset = hosts  # type: ignore[attr-defined]
        self.fields["host"].initial = folder.host_id
        if not hosts.exclude(pk=folder.host_id).exists():
            del self.fields["host"]


class SettingsForm(forms.Form):
    """The settings that people who manage a folder may change."""

    name = forms.CharField(label=_l("Name"), max_length=64, help_text=_NAME_HELP, widget=forms.TextInput(_PLAIN))
    limit_bytes = SizeField(label=_l("Limit"), help_text=_LIMIT_HELP)
    member_rights = forms.ChoiceField(label=_l("Members of the project"), choices=Rights.choices, required=False)
    is_cloneable = forms.BooleanField(label=_l("People who can view it may clone it"), required=False)

    def __init__(self, data: Any = None, *, folder: Folder) -> None:
        names = ("name", "limit_bytes", "member_rights", "is_cloneable")
        super().__init__(data, initial={name: getattr(folder, name) for name in names})
        if folder.project_id is None:
            del self.fields["member_rights"]
        if folder.linked_path:
            del self.fields["limit_bytes"], self.fields["is_cloneable"]
        translate_choices(self)


class ShareForm(forms.Form):
    """The person to invite to a folder."""

    email = forms.EmailField(label=_l("E-mail address"), widget=forms.EmailInput({"autocomplete": "off"}))
    rights = forms.ChoiceField(label=_l("Rights"), choices=[(Rights.VIEW, _l("view")), (Rights.EDIT, _l("edit"))])


class OverrideForm(forms.Form):
    """The member of the project with other rights than the rest."""

    member = forms.ModelChoiceField(User.objects.none(), label=_l("Member"), empty_label=_l("choose one"))
    member_rights = forms.ChoiceField(label=_l("Rights"), choices=Rights.choices)

    def __init__(self, *args: Any, folder: Folder, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = Membership.objects.filter(project=folder.project_id, role=Membership.Role.MEMBER).values("user")
        members = User.objects.filter(pk__in=rows, is_active=True).order_by("email")  # its administrators manage it
        self.fields["member"].queryset = members  # type: ignore[attr-defined]
        translate_choices(self)


def translate_choices(form: forms.Form) -> None:
    """Translate the choices, whose labels come from the models, into the language of the page."""
    for field in form.fields.values():
        if type(field) is forms.ChoiceField:
            field.choices = [(value, in_words(str(word))) for value, word in field.choices]  # type: ignore[union-attr,misc]


def rights_words(rights: str) -> str:
    """Return rights to a folder as translated text."""
    words = {MANAGE: _("manage"), Rights.EDIT: _("edit"), Rights.VIEW: _("view"), Rights.NONE: _("no access")}
    return words.get(rights, rights)
