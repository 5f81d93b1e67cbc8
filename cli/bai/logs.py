"""The output of a kernel, followed over broken connections without a byte lost or written twice."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from urllib.parse import urlencode

from bai.sdk import api
from bai.sdk.call import Unreachable
from bai.sdk.client import Client
from bai.sockets import Closed, Reconnecting, opened
from bai.state import tell

_ENDED = 4000


def follow_log(portal: Client, session_id: str, query: Mapping[str, str], *, tail: int | None) -> None:
    """Write the output until the program ends. A connection begins at the first byte: what was written is skipped."""
    out, tries = sys.stdout.buffer, Reconnecting()
    written = 0
    if tail is not None:
        whole = portal.send(api.log(session_id, **query))
        last = b"".join(whole.splitlines(keepends=True)[-tail:]) if tail else b""
        out.write(last)
        written = len(whole)
    path = f"/ws/sessions/{session_id}/logs/" + (f"?{urlencode(query)}" if query else "")
    while True:
        skip = written
        try:
            with opened(portal, path) as socket:
                while True:
                    piece = socket.recv()
                    tries.succeeded()
                    if isinstance(piece, str):  # the beginning is gone, and with it what could be counted
                        tell("(the beginning of the output was not kept)")
                        skip = 0
                        continue
                    out.write(piece[skip:])
                    out.flush()
                    written += max(len(piece) - skip, 0)
                    skip = max(skip - len(piece), 0)
        except Closed as error:
            if error.code == _ENDED:
                return
            tries.failed(error)
        except Unreachable as error:
            tries.failed(error)
