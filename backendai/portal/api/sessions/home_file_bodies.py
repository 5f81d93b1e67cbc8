"""Bodies of requests about files in the home folder of a session. The answers have the bodies of folders."""

from __future__ import annotations

from rest_framework import serializers

from backendai.portal.api.frame.parsing import StrictSerializer

_LONGEST = 4096
_RAW_HELP = "Relative to the home folder. Of a name that is not UTF-8: //raw: and its path as base64url."


def _path(**options: object) -> serializers.CharField:
    return serializers.CharField(max_length=_LONGEST, trim_whitespace=False, **options)  # type: ignore[arg-type]


class HomePathQuery(StrictSerializer):
    """A file or directory."""

    path = _path(required=False, allow_blank=True, default="", help_text=_RAW_HELP)


class HomeEntriesQuery(HomePathQuery):
    """A page of a directory."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=1000, help_text="Entries; default 200.")
    after = _path(required=False, allow_blank=True, help_text="``next`` of the previous page; empty: the first page.")
    sort = serializers.ChoiceField(choices=["name", "size", "mtime"], required=False)
    order = serializers.ChoiceField(choices=["asc", "desc"], required=False)


class HomeSearchQuery(HomePathQuery):
    """The text to search for, and the directory to start in."""

    q = serializers.CharField(max_length=200, help_text="A part of the name; upper and lower case are equal.")


class HomeDeletionRequest(StrictSerializer):
    """Files and directories to delete permanently."""

    paths = serializers.ListField(child=_path(), min_length=1, max_length=1000)
