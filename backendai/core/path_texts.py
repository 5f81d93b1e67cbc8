"""Paths in folders as text, including paths that are not UTF-8: pages send back the exact bytes.

A UTF-8 path is its own text. Any other becomes ``//raw:`` and its bytes as base64url, with further names after a slash;
no relative path starts like that.
"""

from __future__ import annotations

import base64

from backendai.core.errors import UserError

RAW = "//raw:"


def encode_raw(name: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(name).decode().rstrip("=")


def decode_raw(text: str) -> bytes:
    """Return the bytes of ``encode_raw``. Raises UserError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, TypeError) as error:
        raise UserError("A raw path is base64url.", field="raw_path", code="path-refused") from error


def text_of(path: bytes) -> str:
    """Return a path as text that ``bytes_of`` converts back."""
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
    """Return a path for display, with replacement characters where it is not UTF-8."""
    return path.decode(errors="replace")
