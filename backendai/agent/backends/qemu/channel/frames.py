"""Frames between a virtual machine's supervisor and its first process, over one virtio-serial port.

A frame is its type, a zero byte, the length of its body (16 bits), its stream (32 bits), and the body; numbers are
little endian. A sender may have ``WINDOW`` unacknowledged bytes on a stream; the receiver grants credit for bytes that
it has forwarded, so that an unread stream delays no other. Only the standard library, as the supervisor runs alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

WINDOW = 256 * 1024
LARGEST = 16384
LOG = 1  # the stream of the main process's output
_HEAD = struct.Struct("<BBHI")
_CREDIT, _CODE, _SIZE = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<HH")


class FrameKind(IntEnum):
    """Types of frames, as in ``init/init.h``."""

    OPEN = 1
    DATA = 2
    CREDIT = 3
    END_OF_INPUT = 4
    END = 5
    RESIZE = 6
    SAY = 7
    OPENED = 8


class BadFrame(ValueError):
    """The other side violates the protocol."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on a stream; stream 0 belongs to the two sides themselves."""

    kind: int
    stream: int
    body: bytes = b""

    def encoded(self) -> bytes:
        """Return the frame's bytes."""
        return _HEAD.pack(self.kind, 0, len(self.body), self.stream) + self.body

    @property
    def credit(self) -> int:
        """The number of further bytes that may be sent. Raises BadFrame."""
        return int(_unpacked(_CREDIT, self.body)[0])

    @property
    def code(self) -> int:
        """The exit code of a stream. Raises BadFrame."""
        return int(_unpacked(_CODE, self.body)[0])

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")


class FrameDecoder:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the complete frames. Raises BadFrame for one that is too large."""
        self._kept += data
        while len(self._kept) >= _HEAD.size:
            kind, _, length, stream = _HEAD.unpack_from(self._kept)
            if length > LARGEST:
                raise BadFrame(f"a frame of {length} bytes")
            if len(self._kept) < _HEAD.size + length:
                return
            body = bytes(self._kept[_HEAD.size : _HEAD.size + length])
            del self._kept[: _HEAD.size + length]
            yield Frame(kind, stream, body)


def opening(stream: int, letter: str, words: Sequence[str]) -> Frame:
    """Return the frame that opens a stream. Raises BadFrame if the words together are too long."""
    if any("\0" in word for word in words):
        raise BadFrame("a word has a zero in it")
    body = letter.encode() + b"".join(word.encode() + b"\0" for word in words)
    if len(body) > LARGEST:
        raise BadFrame(f"the words have {len(body)} bytes; {LARGEST} are the most")
    return Frame(FrameKind.OPEN, stream, body)


def credit(stream: int, amount: int) -> Frame:
    """Return the frame that grants the other side more bytes."""
    return Frame(FrameKind.CREDIT, stream, _CREDIT.pack(amount))


def end(stream: int, code: int = 0) -> Frame:
    """Return the frame that ends a stream."""
    return Frame(FrameKind.END, stream, _CODE.pack(code))


def size(stream: int, rows: int, columns: int) -> Frame:
    """Return the frame that sets the size of a terminal."""
    return Frame(FrameKind.RESIZE, stream, _SIZE.pack(min(max(rows, 1), 65535), min(max(columns, 1), 65535)))


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces that fit into frames."""
    for start in range(0, len(data), LARGEST):
        yield data[start : start + LARGEST]


def program_words(words: Sequence[str], environ: dict[str, str], folder: str = "") -> list[str]:
    """Return the words of the frame that starts a program of the kernel: folder, variables, command."""
    variables = [f"{name}={value}" for name, value in environ.items()]
    return [folder, str(len(variables)), *variables, *words]


def _unpacked(form: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) != form.size:
        raise BadFrame(f"a body of {len(body)} bytes")
    return form.unpack(body)
