"""Frames between agent and guest agent: one byte for the kind, four for the length (big-endian), then the content.

The guest agent's program contains this module.
"""

from __future__ import annotations

INPUT, RESIZE, SIGNAL = 0, 1, 2  # to the program; an empty INPUT ends its input
STDOUT, STDERR, EXIT = 1, 2, 3  # from the program
LARGEST = 256 * 1024


def frame(kind: int, content: bytes) -> bytes:
    """Return the encoded frame."""
    return bytes((kind,)) + len(content).to_bytes(4, "big") + content
