"""The lines of a log, however its engine keeps them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from backendai.base.core.log_lines import from_last_lines, last_lines

RECORD = 4
LINES = [b"a\n", b"1%\r2%\r3%\n", b"\x0b\x0c\x1c\n", b"\n", b"a-long-line\n", b"begun"]


@pytest.mark.parametrize("ends", [True, False])
def test_only_a_newline_ends_a_line(ends: bool) -> None:
    lines = LINES[: 5 + (not ends)]
    for count in range(10):
        assert last_lines(b"".join(lines), count) == b"".join(lines[len(lines) - min(count, len(lines)) :])
    assert last_lines(b"", 3) == b""


@pytest.mark.asyncio
async def test_lines_are_counted_where_the_engine_counts_records() -> None:
    records = [line[at : at + RECORD] for line in LINES for at in range(0, len(line), RECORD)]

    async def read(number: int, follow: bool) -> AsyncGenerator[bytes]:
        for record in records[-number:]:
            yield record
        if follow:
            yield b" and ended\n"

    for count in range(1, 8):
        for follow in (False, True):
            seen = b"".join([piece async for piece in from_last_lines(read, count, follow=follow)])
            assert seen == last_lines(b"".join(LINES), count) + b" and ended\n" * follow
