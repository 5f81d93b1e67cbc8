"""Parts of the addresses of folders."""

from __future__ import annotations


class VerbConverter:
    """What is done to a whole folder."""

    regex = "trash|restore|retry|leave"

    def to_python(self, value: str) -> str:
        """Return the verb."""
        return value

    to_url = to_python


class DigitsConverter(VerbConverter):
    """The first digits of a folder's id, as they stand in the name of its files' host."""

    regex = "[0-9a-f]{12}"
