"""Represents paths in folders as text from which the exact bytes can be restored, UTF-8 or not.

A UTF-8 path is represented by itself. Any other path becomes ``//raw:`` and its bytes as base64url, with further names
after a slash. No relative path begins like this.
"""

from __future__ import annotations

import base64

from backendai.base.core.errors import UserError

RAW = "//raw:"


def encode_raw(name: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(name).decode().rstrip("=")


def decode_raw(text: str) -> bytes:
    """Return the bytes that ``encode_raw`` encoded. Raises UserError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, TypeError) as error:
        raise UserError("A raw path is base64url.", field="raw_path", code="path-refused") from error


def text_of(path: bytes) -> str:
    """Return a path as text, which ``bytes_of`` converts back."""
    try:
        return path.decode()
    except UnicodeDecodeError:
        return RAW + encode_raw(path)


def bytes_of(text: str) -> bytes:
    """Return the bytes of a path from its text. Raises UserError for invalid base64url after ``//raw:``."""
    if not text.startswith(RAW):
        return text.encode(errors="surrogatepass")
    first, slash, rest = text.removeprefix(RAW).partition("/")
    return decode_raw(first) + (slash + rest).encode(errors="surrogatepass")


def shown_text(path: bytes) -> str:
    """Return a path for display, with replacement characters for bytes that are not UTF-8."""
    return path.decode(errors="replace")
