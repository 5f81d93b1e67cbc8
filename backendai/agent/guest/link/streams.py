"""Connections that turn into a byte stream after one line: a program, an SFTP server, or a port or socket of the
kernel."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, cast

from backendai.agent.guest import kit, shells
from backendai.agent.guest.code.checking import Refused
from backendai.agent.guest.link.dialing import dial
from backendai.agent.guest.processes import start_folder

_FILE_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
NAMES = ("exec", "transfer", "sftp", "dial")


async def serve(
    order: dict[str, Any],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    is_simulated: bool,
    shares_network: bool,
) -> None:
    """Serve one stream to its end. Raises Refused."""
    if is_simulated:
        raise Refused("no-programs", "This session is simulated: no programs run in it.")
    if order["op"] in ("exec", "transfer"):
        await shells.run(order, reader, writer)
    elif order["op"] == "sftp":
        await _serve_files(order, writer)
    else:
        await dial(order, reader, writer, shares_network=shares_network)


async def _serve_files(order: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Pass the connection itself to an SFTP server, so that no bytes are copied here. The client sends only after the
    answer, so none of its bytes have been read."""
    argv = _file_server()
    cast(asyncio.Transport, writer.transport).pause_reading()
    writer.write(b"{}\n")
    await writer.drain()
    file = os.dup(writer.get_extra_info("socket").fileno())
    try:
        os.set_blocking(file, True)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=file,
            stdout=file,
            stderr=asyncio.subprocess.DEVNULL,
            env=shells.environment(order, "/bin/sh"),
            cwd=start_folder(),
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("not-started", f"The server of files cannot be started: {error}") from error
    finally:
        os.close(file)
    await process.wait()


def _file_server() -> list[str]:
    """Return the command of an SFTP server: the image's, else the kit's, else ours."""
    own = next((path for path in _FILE_SERVERS if os.access(path, os.X_OK)), None) or kit.file_server()
    return [own] if own else [kit.python(), "-I", "-S", sys.argv[0], "sftp"]
