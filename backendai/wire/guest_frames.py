"""Frames between agent and guest agent: one byte for the kind, four for the length, then the content. The guest agent
imports none of our packages; ``agent/guest/frames.py`` repeats this format."""

from __future__ import annotations

INPUT, RESIZE, SIGNAL = 0, 1, 2  # towards the program; an empty INPUT is its end
STDOUT, STDERR, EXIT = 1, 2, 3  # from it
LARGEST = 256 * 1024


def frame(kind: int, content: bytes) -> bytes:
    """Return the encoded frame."""
    return bytes((kind,)) + len(content).to_bytes(4, "big") + content
