"""Bodies of requests and answers about files of folders."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.portal.api.frame.parsing import StrictSerializer

_LONGEST = 4096
_MOST_PATHS = 1000
_SORTS = ["name", "size", "mtime"]


def _path(**options: Any) -> serializers.CharField:
    return serializers.CharField(max_length=_LONGEST, trim_whitespace=False, **options)


class PathQuery(StrictSerializer):
    """A directory. ``raw_path`` accepts names that are not UTF-8, as responses give them under ``raw``."""

    path = _path(required=False, allow_blank=True, help_text="Relative to the folder; empty: the folder itself.")
    raw_path = _path(required=False, help_text="Instead of path: base64url.")


class EntriesQuery(PathQuery):
    """A page of the directory."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=1000, help_text="Entries; default 200.")
    after = _path(required=False, allow_blank=True, help_text="``next`` of the previous page; empty: the first page.")
    sort = serializers.ChoiceField(choices=_SORTS, required=False)
    order = serializers.ChoiceField(choices=["asc", "desc"], required=False)


class DirectoryRequest(StrictSerializer):
    """The new directory."""

    path = _path()


class MoveRequest(StrictSerializer):
    """Source and target of a move or copy."""

    source = _path()  # type: ignore[assignment]  # the name of an attribute of serializers, too
    target = _path()
    overwrite = serializers.BooleanField(default=False, help_text="Replace an existing file.")


class FolderMoveRequest(MoveRequest):
    """Source and target of a move or copy in a folder."""

    keep_both = serializers.BooleanField(default=False, help_text="Number the name if it is taken: ``name (2)``.")


class DeletionRequest(StrictSerializer):
    """Files and directories to move to the folder's trash."""

    paths = serializers.ListField(child=_path(), min_length=1, max_length=_MOST_PATHS)


class TrashQuery(StrictSerializer):
    """A page of the trash."""

    after = _path(required=False, allow_blank=True, help_text="``next`` of the previous page; empty: the first page.")


class ItemRestoreRequest(StrictSerializer):
    """How to restore a deleted file or directory."""

    overwrite = serializers.BooleanField(default=False, help_text="Replace an existing file.")
    keep_both = serializers.BooleanField(default=False, help_text="Number the name if it is taken: ``name (2)``.")


class EntryBody(serializers.Serializer[Any]):
    """A file or directory."""

    name = serializers.CharField()
    raw = serializers.CharField(required=False, help_text="The name as base64url, if it is not UTF-8.")
    kind = serializers.ChoiceField(choices=["file", "directory", "link", "other"])
    size = serializers.IntegerField()
    mtime = serializers.FloatField(help_text="In seconds since 1970.")
    target = serializers.CharField(required=False, help_text="The target of a link.")


class EntriesBody(serializers.Serializer[Any]):
    """One page of a directory."""

    entries = EntryBody(many=True)
    next = serializers.CharField(
        allow_null=True, help_text="The value of ``after`` for the next page; null: this is the last page."
    )
    total = serializers.IntegerField()
    sorted = serializers.BooleanField(help_text="false: the directory is too large to sort.")
    as_of = serializers.FloatField(help_text="When the directory was read.")


class PathBody(serializers.Serializer[Any]):
    """Where a file or directory is now."""

    path = serializers.CharField()
    raw_path = serializers.CharField(required=False, help_text="The path as base64url, if it is not UTF-8.")


class TrashedBody(PathBody):
    """A file or directory that was put into the trash, and where it was."""

    id = serializers.CharField(help_text="Its name in the trash.")


class TrashedListBody(serializers.Serializer[Any]):
    """The files and directories that were put into the trash."""

    items = TrashedBody(many=True)


class OperationProgressBody(serializers.Serializer[Any]):
    """The progress of an operation."""

    bytes = serializers.IntegerField()
    files = serializers.IntegerField()
    total_bytes = serializers.IntegerField(allow_null=True)
    total_files = serializers.IntegerField(allow_null=True)


class OperationBody(serializers.Serializer[Any]):
    """A copy or deletion that takes long."""

    operation = serializers.CharField()
    state = serializers.ChoiceField(choices=["running", "done", "failed", "stopped"])
    progress = OperationProgressBody()
    result = serializers.JSONField(required=False, help_text="Once it is done: the usual answer.")
    error = serializers.JSONField(required=False, help_text="Once it has failed: status, code and message.")


class TrashItemBody(serializers.Serializer[Any]):
    """A deleted file or directory in the trash of a folder."""

    id = serializers.CharField()
    path = serializers.CharField()
    kind = serializers.CharField()
    size = serializers.IntegerField()
    deleted_at = serializers.FloatField()


class TrashBody(serializers.Serializer[Any]):
    """A page of the trash."""

    items = TrashItemBody(many=True)
    next = serializers.CharField(allow_null=True)
