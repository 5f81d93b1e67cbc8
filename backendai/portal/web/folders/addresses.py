"""URL path converters of the folder pages."""

from __future__ import annotations


class VerbConverter:
    """Matches an action on a whole folder."""

    regex = "trash|restore|retry|leave"

    def to_python(self, value: str) -> str:
        return value

    to_url = to_python


class DigitsConverter(VerbConverter):
    """Matches the first digits of a folder's id, as in the host name of its files."""

    regex = "[0-9a-f]{12}"
