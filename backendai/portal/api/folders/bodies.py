"""Bodies of requests and answers about folders, shares and storage hosts."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.file_origins import files_url
from backendai.domain.storage.models import Folder, FolderGrant, FolderSize
from backendai.domain.storage.status import GrantKind, Rights, Usage
from backendai.portal.api.frame.parsing import StrictSerializer

_Project = {"type": "object", "nullable": True, "properties": {
    "id": {"type": "string", "format": "uuid"}, "name": {"type": "string"}, "domain": {"type": "string"},
}}  # fmt: skip
_MOST = 2**63 - 1
_RIGHTS = "none, view or edit."


def _name(**options: Any) -> serializers.CharField:
    text = "1 to 64 letters, digits, '.', '_' or '-'."
    return serializers.CharField(max_length=64, trim_whitespace=False, help_text=text, **options)


def _limit(**options: Any) -> serializers.IntegerField:
    text = "In bytes; null: unlimited."
    return serializers.IntegerField(min_value=1, max_value=_MOST, allow_null=True, help_text=text, **options)


class FolderBody(serializers.ModelSerializer[Folder]):
    """A folder, with the rights of the user."""

    host = serializers.CharField(source="host.name")
    owner = serializers.CharField(
        source="user.email",
        read_only=True,
        allow_null=True,
        help_text="The e-mail address of its owner; null: a project's folder.",
    )
    project = serializers.SerializerMethodField(help_text="null: a user's folder.")
    usage = serializers.CharField()
    rights = serializers.CharField(help_text="view, edit or manage.")
    member_rights = serializers.CharField(help_text="The rights of the project's members.")
    status = serializers.CharField()
    is_linked = serializers.SerializerMethodField(help_text="An existing directory, offered read-only.")
    is_reachable = serializers.SerializerMethodField(help_text="Whether its storage host works.")
    is_limit_enforced = serializers.SerializerMethodField(help_text="false: the limit is only measured.")
    deleted_at = serializers.SerializerMethodField(help_text="When it will be deleted from the trash.")
    files_url = serializers.SerializerMethodField(help_text="Where its files are uploaded and downloaded.")

    class Meta:
        model = Folder
        fields = [
            "id", "name", "host", "owner", "project", "usage", "rights", "member_rights", "is_cloneable", "is_linked",
            "status", "status_message", "is_reachable", "limit_bytes", "is_limit_enforced", "used_bytes", "used_files",
            "measured_at", "created_at", "changed_at", "trashed_at", "deleted_at",
            "files_url",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Project)
    def get_project(self, folder: Folder) -> dict[str, str] | None:
        """Return the project that owns the folder, or None."""
        project = folder.project
        if project is None:
            return None
        return {"id": str(project.pk), "name": project.name, "domain": project.domain.name}

    def get_files_url(self, folder: Folder) -> str:
        """Return the address below which programs with an access token reach the folder's files."""
        return files_url(folder.pk)

    def get_is_linked(self, folder: Folder) -> bool:
        """Return whether the folder is an existing directory of the storage host."""
        return bool(folder.linked_path)

    def get_is_reachable(self, folder: Folder) -> bool:
        """Return whether the folder's storage host works."""
        return not folder.host.fault

    def get_is_limit_enforced(self, folder: Folder) -> bool:
        """Return whether the file system enforces the folder's limit."""
        return folder.host.quota_mode == "enforced"

    @extend_schema_field({"type": "string", "format": "date-time", "nullable": True})
    def get_deleted_at(self, folder: Folder) -> str | None:
        """Return when the folder will be purged from the trash; None if it is not in the trash, or stays there."""
        if folder.trashed_at is None or not settings.FOLDER_TRASH_FOR:
            return None
        return (folder.trashed_at + settings.FOLDER_TRASH_FOR).isoformat().replace("+00:00", "Z")


class FolderRequest(StrictSerializer):
    """A new folder."""

    name = _name()
    host = serializers.CharField(max_length=32, required=False, help_text="A storage host; default: the default one.")
    project = serializers.UUIDField(required=False, help_text="A project that you manage; default: your own folder.")
    usage = serializers.ChoiceField(choices=Usage.choices, default=Usage.GENERAL)
    limit_bytes = _limit(default=None)
    is_cloneable = serializers.BooleanField(default=False)
    member_rights = serializers.CharField(max_length=8, default=Rights.EDIT, help_text=_RIGHTS)
    linked_path = serializers.CharField(
        max_length=255, required=False, help_text="Superadmins: an existing directory of the host, offered read-only."
    )


class KeepHomeRequest(StrictSerializer):
    """The folder into which the home folder of a session is copied."""

    name = _name()
    host = serializers.CharField(max_length=32, required=False, help_text="A storage host; default: the default one.")
    limit_bytes = _limit(required=False)
    ends_session = serializers.BooleanField(default=False, help_text="Terminate the session after the copy.")


class FolderChange(StrictSerializer):
    """Changes of a folder; omitted fields stay unchanged."""

    name = _name(required=False)
    limit_bytes = _limit(required=False)
    member_rights = serializers.CharField(max_length=8, required=False, help_text=_RIGHTS)
    is_cloneable = serializers.BooleanField(required=False)


class FolderRestoreRequest(StrictSerializer):
    """The name of the restored folder; default: its own."""

    name = _name(required=False, allow_blank=True)


class FolderPurgeRequest(StrictSerializer):
    """The name of the folder, to confirm."""

    name = serializers.CharField(max_length=64, trim_whitespace=False)


class FolderCloneRequest(StrictSerializer):
    """The name and place of a folder's copy."""

    name = _name()
    project = serializers.UUIDField(required=False, help_text="A project that you manage; default: your own folder.")
    limit_bytes = _limit(default=None)
    host = serializers.CharField(max_length=32, default="", help_text="Another storage host; default: the same.")


class FolderShareRequest(StrictSerializer):
    """The person to share with, and the rights."""

    email = serializers.CharField(max_length=254)
    rights = serializers.CharField(max_length=8, help_text=_RIGHTS)
    kind = serializers.ChoiceField(
        choices=GrantKind.choices,
        default=GrantKind.INVITATION,
        help_text="override: a member of the project gets these rights at once, instead of the project's default.",
    )


class FolderTransferRequest(StrictSerializer):
    """The current and the new owner."""

    from_user = serializers.CharField(max_length=254, help_text="An e-mail address.")
    to_user = serializers.CharField(max_length=254, help_text="An e-mail address.")


class FolderGrantBody(serializers.ModelSerializer[FolderGrant]):
    """The rights of a user to a folder of another owner."""

    user_id = serializers.UUIDField()
    email = serializers.CharField(source="user.email")
    rights = serializers.CharField()
    kind = serializers.CharField()
    accepted_at = serializers.DateTimeField(allow_null=True, help_text="null: not answered.")

    class Meta:
        model = FolderGrant
        fields = ["user_id", "email", "rights", "kind", "accepted_at", "created_at"]
        read_only_fields = fields


class FolderInvitationBody(serializers.ModelSerializer[FolderGrant]):
    """An invitation to a folder, as the invited person sees it."""

    folder_id = serializers.UUIDField()
    folder = serializers.CharField(source="folder.name")
    rights = serializers.CharField()
    invited_by = serializers.CharField(
        source="created_by.email",
        read_only=True,
        allow_null=True,
        help_text="The e-mail address of the person who shares it.",
    )

    class Meta:
        model = FolderGrant
        fields = ["id", "folder_id", "folder", "rights", "invited_by", "created_at"]
        read_only_fields = fields


class FolderCutRequest(StrictSerializer):
    """Whether the session continues without the folder."""

    keep_session = serializers.BooleanField(
        default=False, help_text="Unmount the folder instead of ending the session."
    )


class FolderUseBody(serializers.ModelSerializer[SessionMount]):
    """A session that mounts or mounted the folder."""

    session_id = serializers.UUIDField()
    session = serializers.CharField(source="session.name")
    owner = serializers.CharField(source="session.owner.email")
    rights = serializers.CharField()

    class Meta:
        model = SessionMount
        fields = [
            "session_id", "session", "owner", "sub_path", "target", "rights", "is_automatic", "created_at",
            "released_at", "cut_at",
        ]  # fmt: skip
        read_only_fields = fields


class FolderSizeBody(serializers.ModelSerializer[FolderSize]):
    """The size of the folder on one day."""

    class Meta:
        model = FolderSize
        fields = ["day", "used_bytes", "used_files"]
        read_only_fields = fields


class FolderUsageBody(serializers.Serializer[Any]):
    """The size of a folder, now and by day."""

    used_bytes = serializers.IntegerField(allow_null=True)
    used_files = serializers.IntegerField(allow_null=True)
    limit_bytes = serializers.IntegerField(allow_null=True)
    measured_at = serializers.DateTimeField(allow_null=True)
    days = FolderSizeBody(many=True)


class FolderTicketRequest(StrictSerializer):
    """The rights of the ticket."""

    rights = serializers.CharField(max_length=8, default="view", help_text="view or edit.")


class FolderTicketBody(serializers.Serializer[Any]):
    """A ticket, the address of its file server, and its lifetime in seconds."""

    ticket = serializers.CharField()
    address = serializers.CharField()
    expires_in = serializers.IntegerField()
