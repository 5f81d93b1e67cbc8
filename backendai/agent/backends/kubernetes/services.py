"""Services inside pods: reached at the pod's address, or through the API; started by a command that outlives its
stream."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from uuid import UUID

import aiohttp

from backendai.agent.backends.base import SH, TOOLS, BackendError
from backendai.agent.backends.kubernetes.api.names import pod_name
from backendai.agent.backends.kubernetes.api.streams import forward, output_of
from backendai.agent.backends.kubernetes.pods import Pods
from backendai.agent.backends.service_host import ServiceHost, ServiceSource
from backendai.agent.backends.shared.services import LARGEST_DEFINITION, LAUNCH, LOG, definition_of
from backendai.base.core.service_ports import LABEL

_NO_DEFINITION = 66
_PIECE = 32 * 1024
# The program continues in its own session; its exit code is saved beside its log.
_BEGIN = rf"""
export BACKENDAI_APP="$0" BACKENDAI_APP_FOLDER=/tmp
code=/tmp/.app-$0.$1.code; shift
apart=$({TOOLS} command -v setsid) env=$({TOOLS} command -v env)
$apart /bin/sh -c 'code=$1; shift; "$@"; echo $? >"$code"' run "$code" "$env" "$@" >/dev/null 2>&1 </dev/null &
""".strip()
_READ = f'{TOOLS}; [ -f "$0" ] || exit {_NO_DEFINITION}; head -c {LARGEST_DEFINITION} "$0"'
_LISTENS = f'{TOOLS}; cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qE ":$0 [0-9A-F]+:0000 0A "'
_CODE = f'{TOOLS}; [ ! -f "$0" ] || cat "$0"'


class PodServices(ServiceHost):
    """The services of one agent's pods. ``forwards``: this machine cannot reach the pods' network."""

    carries = True

    def __init__(self, pods: Pods, *, forwards: bool) -> None:
        self._pods, self.forwards = pods, forwards

    def address(self, kernel_id: UUID) -> str:
        """Return the pod's address; empty if ports are reached only through the API."""
        pod = self._pods.running(kernel_id)
        return "" if self.forwards else str(pod["status"].get("podIP") or "")

    async def connect(self, kernel_id: UUID, port: int) -> socket.socket | None:
        """Return a socket connected to a port of the pod's loopback through the API; None if nothing listens, which the
        API itself does not report."""
        if not await asyncio.to_thread(self._listens, kernel_id, port):
            return None
        session, stream = await forward(self._pods.api, pod_name(kernel_id), port)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        task = asyncio.create_task(_join(session, stream, ours))
        _JOINED.add(task)
        task.add_done_callback(_JOINED.discard)
        return theirs

    def _listens(self, kernel_id: UUID, port: int) -> bool:
        self._pods.running(kernel_id)
        words = [SH, "-c", _LISTENS, f"{port:04X}"]
        return output_of(self._pods.api, pod_name(kernel_id), words)[1] == 0

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        """Return the image's definition file and the kernel's ports; the cluster does not report the image's labels."""
        pod = self._pods.running(kernel_id)
        environ = pod["spec"]["containers"][0].get("env") or []
        ports = next((one.get("value", "") for one in environ if one["name"] == "BACKENDAI_SERVICE_PORTS"), "")
        words = [SH, "-c", _READ, definition_of(service)]
        output, code = output_of(self._pods.api, pod_name(kernel_id), words)
        return ServiceSource(output if code == 0 else None, {LABEL: ports} if ports else {})

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Start the program; returns kernel, service and the launch's number."""
        self._pods.running(kernel_id)
        number = secrets.token_hex(4)
        told = [f"{name}={value}" for name, value in environ.items()]
        words = [SH, "-c", _BEGIN, service, number, *told, SH, "-c", LAUNCH, service, *command]
        output, code = output_of(self._pods.api, pod_name(kernel_id), words)
        if code != 0:
            raise BackendError(
                "{service} cannot be started: {words}", service=service, words=output.decode(errors="replace")[:300]
            )
        return f"{kernel_id}/{service}/{number}"

    def exit_code(self, handle: str) -> int | None:
        """Return the exit code that was saved at the program's end; None while it runs."""
        kernel, service, number = handle.split("/")
        self._pods.running(UUID(kernel))
        path = f"/tmp/.app-{service}.{number}.code"  # noqa: S108 - of the container
        output, _ = output_of(self._pods.api, pod_name(UUID(kernel)), [SH, "-c", _CODE, path])
        text = output.decode(errors="replace").strip()
        return int(text) if text.isdigit() else None

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        """Return the end of the file that receives the program's output."""
        self._pods.running(kernel_id)
        output, _ = output_of(self._pods.api, pod_name(kernel_id), [SH, "-c", LOG, service, str(limit)])
        return output


_JOINED: set[asyncio.Task[None]] = set()  # references, as asyncio holds tasks only weakly


async def _join(session: aiohttp.ClientSession, stream: aiohttp.ClientWebSocketResponse, ours: socket.socket) -> None:
    """Copy bytes both ways until one side ends. Channel 0 is the port's data, channel 1 its errors; the first message
    of each only repeats the port number."""
    loop, greeted = asyncio.get_running_loop(), set[int]()

    async def outwards() -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while piece := await loop.sock_recv(ours, _PIECE):
                await stream.send_bytes(b"\0" + piece)

    sending = asyncio.create_task(outwards())
    try:
        async for message in stream:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                break
            channel, data = message.data[0], message.data[1:]
            if channel not in greeted:
                greeted.add(channel)
            elif channel == 0:
                await loop.sock_sendall(ours, data)
            else:
                break
    except OSError:
        pass
    finally:
        sending.cancel()
        ours.close()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(stream.close(), 2)
        await session.close()
