"""Decides by a file's first bytes, never its name, whether a browser may show the file."""

from __future__ import annotations

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (0, b"BM", "image/bmp"),
    (0, b"%PDF-", "application/pdf"),
    (4, b"ftypisom", "video/mp4"),
    (4, b"ftypmp4", "video/mp4"),
    (4, b"ftypM4V", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"WAVE", "audio/wav"),
)
_LONGEST_CHARACTER = 4


def media_type(head: bytes) -> str | None:
    """Return the media type to show a file as; None for a download. HTML and SVG are shown as plain text."""
    for offset, mark, kind in _MAGIC:
        if head[offset : offset + len(mark)] == mark:
            return kind
    return "text/plain; charset=utf-8" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The last character may be incomplete.
        return error.end == len(head) and len(head) - error.start < _LONGEST_CHARACTER and len(head) > error.start > 0
    return True
