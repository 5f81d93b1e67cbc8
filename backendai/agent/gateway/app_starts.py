"""Starts the programs of kernels' services on first use, once each, with a deadline. A failed start returns the end of
the program's log."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from backendai.agent.backends.base import SH, BackendError, KernelGone, with_cause
from backendai.agent.backends.service_host import ARGUMENTS, ServiceHost, ServiceSource
from backendai.agent.gateway.ports import Ports
from backendai.base.core.messages import Message
from backendai.base.core.service_ports import service_ports_of

_WAIT_SECONDS = 1.5
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 3.0  # then a guest is started to check whether the service listens on the loopback only
_SLOW_SECONDS = 5.0  # from then on the state of a starting service has the end of its output
_LOG_BYTES = 4096
_RUNTIME = "ai.backend.runtime-path"
_PLACE = re.compile(r"\{(?:ports\[(\d{1,2})\]|(runtime_path|socket))\}")
_ARGUMENTS = "{arguments}"
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,500}\Z")
State = Literal["ready", "starting", "failed", "absent"]


@dataclass(frozen=True, slots=True)
class AppState:
    """The state of a service, and the path of its first page. ``log``: the end of its output if it failed or starts
    slowly. ``seconds``: since its start. ``message``: what a starting service waits for (``percent``: its progress), or
    why it failed. ``absent``: nothing listens, and the image does not define a command that starts the service."""

    state: State
    message: str = ""
    path: str = "/"
    log: str = ""
    seconds: float = 0.0
    percent: int | None = None


class BadDefinition(BackendError):
    """The image's definition of a service is invalid."""

    code = "bad-service-definition"


@dataclass(slots=True)
class _Launch:
    handle: str
    path: str
    at: float
    arguments: tuple[str, ...] = ()
    was_ready: bool = False


class AppStarts:
    """The services that this agent launched, by kernel and name. ``now`` returns monotonic seconds. Call ``forget``
    with the kernels that still exist."""

    def __init__(
        self, host: ServiceHost, ports: Ports | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._ports, self._now = host, ports or Ports(host), now
        self._launches: dict[tuple[UUID, str], _Launch] = {}
        self._earlier: dict[tuple[UUID, str], str] = {}  # arguments of launches by an earlier agent
        self._locks: defaultdict[tuple[UUID, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def look(
        self, kernel_id: UUID, service: str, port: int, *, again: bool = False, arguments: Sequence[str] = ()
    ) -> AppState:
        """Return the state of a service, and start the service first if nothing listens. Waits 1.5 s at most. ``again``
        repeats a failed start; other ``arguments`` than those of the last start restart the service. Raises KernelGone,
        BackendError."""
        words = tuple(arguments)
        async with self._locks[kernel_id, service]:
            launch = self._launches.get((kernel_id, service))
            is_other = await self._runs_otherwise(kernel_id, service, launch, words)
            is_late = launch is None or self._now() - launch.at > _PATIENCE_SECONDS
            if not is_other and await self._ports.answers(kernel_id, service, port, from_inside=is_late):
                return await self._ready(kernel_id, service)
            if launch is None or again or is_other or (launch.was_ready and await self._exit_code(launch) is not None):
                found = await self._launch(kernel_id, service, port, words)
                if isinstance(found, AppState):
                    return found
                launch = found
            return await self._wait(kernel_id, service, launch, port)

    def forget(self, live: set[UUID]) -> None:
        """Remove the entries of all kernels that are not in ``live``."""
        for key in [key for key in self._locks if key[0] not in live]:
            self._launches.pop(key, None)
            self._earlier.pop(key, None)
            del self._locks[key]

    async def _runs_otherwise(
        self, kernel_id: UUID, service: str, launch: _Launch | None, words: tuple[str, ...]
    ) -> bool:
        """Return whether the service was launched with other arguments, by this agent or an earlier one."""
        if launch is not None:
            return launch.arguments != words
        key = (kernel_id, service)
        if key not in self._earlier:
            self._earlier[key] = await asyncio.to_thread(self._host.arguments, kernel_id, service)
        return self._earlier[key] not in ("", json.dumps(words))

    async def _ready(self, kernel_id: UUID, service: str) -> AppState:
        launch = self._launches.get((kernel_id, service))
        if launch is None:  # started by an earlier agent or by hand
            source = await asyncio.to_thread(self._host.source, kernel_id, service)
            return AppState("ready", path=_first_page(source.definition))
        launch.was_ready = True
        return AppState("ready", path=launch.path, seconds=self._now() - launch.at)

    async def _launch(self, kernel_id: UUID, service: str, port: int, words: tuple[str, ...]) -> _Launch | AppState:
        """Launch the service's program; returns the launch, or the state that explains why nothing was launched."""
        source = await asyncio.to_thread(self._host.source, kernel_id, service)
        if source.definition is None:
            return _not_launched(source, port)
        socket = await asyncio.to_thread(self._host.socket, kernel_id, service)
        command, environ, path = _read_definition(source, service, socket, words)
        told = {**environ, ARGUMENTS: json.dumps(words)}
        handle = await asyncio.to_thread(self._host.launch, kernel_id, service, command, told)
        launch = self._launches[kernel_id, service] = _Launch(handle, path, self._now(), words)
        return launch

    async def _wait(self, kernel_id: UUID, service: str, launch: _Launch, port: int) -> AppState:
        until = self._now() + _WAIT_SECONDS
        while True:
            if await self._ports.answers(kernel_id, service, port, from_inside=False):
                return await self._ready(kernel_id, service)
            code = await self._exit_code(launch)
            waited = self._now() - launch.at
            if code is not None:
                return await self._failed(kernel_id, service, f"{service} ended with exit code {code}.")
            if waited > (longest := self._host.longest_start()):
                text = Message(
                    "{service} did not answer on port {port} within {seconds} s.",
                    service=service,
                    port=port,
                    seconds=f"{longest:.0f}",
                )
                return await self._failed(kernel_id, service, with_cause(text))
            if self._now() >= until:
                log = ""
                if waited > _SLOW_SECONDS:
                    log = await self._log_if_readable(kernel_id, service)
                return AppState("starting", path=launch.path, seconds=waited, log=log)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _exit_code(self, launch: _Launch) -> int | None:
        try:
            return await asyncio.to_thread(self._host.exit_code, launch.handle)
        except KernelGone:
            return 0

    async def _failed(self, kernel_id: UUID, service: str, message: str) -> AppState:
        return AppState("failed", message, log=await self._log(kernel_id, service))

    async def _log(self, kernel_id: UUID, service: str) -> str:
        log = await asyncio.to_thread(self._host.log, kernel_id, service, limit=_LOG_BYTES)
        return log.decode(errors="replace").replace("\0", "")

    async def _log_if_readable(self, kernel_id: UUID, service: str) -> str:
        """Return the end of the service's output; empty while it cannot be read. Raises KernelGone."""
        try:
            return await self._log(kernel_id, service)
        except KernelGone:
            raise
        except BackendError:  # the service starts nevertheless
            return ""


def _not_launched(source: ServiceSource, port: int) -> AppState:
    if source.waiting:
        return AppState("starting", source.waiting, percent=source.percent)
    return (
        AppState("failed", source.fault)
        if source.fault
        else AppState("absent", f"Nothing is listening on port {port}.")
    )


def _read_definition(
    source: ServiceSource, service: str, socket: str, words: Sequence[str]
) -> tuple[list[str], dict[str, str], str]:
    """Return the command, its environment variables and the path of the first page. ``prestart`` commands precede the
    command. Raises BadDefinition."""
    said = _parsed(source.definition)
    command: Any = said.get("command")
    environ = said.get("env", {})
    if not _is_command(command):
        raise BadDefinition("The image's definition of {service} names no command.", service=service)
    if not isinstance(environ, dict) or not all(isinstance(value, str) for value in environ.values()):
        raise BadDefinition("The image's definition of {service} has variables that are no texts.", service=service)
    ports = next((one.ports for one in service_ports_of(source.labels) if one.name == service), ())
    named = {"runtime_path": source.labels.get(_RUNTIME, ""), "socket": socket}
    before: Any = said.get("prestart", [])
    if not isinstance(before, list) or not all(_is_command(one) for one in before):
        text = "The image's definition of {service} has a prestart entry that is not a command."
        raise BadDefinition(text, service=service)
    filled = _with_arguments([_filled(word, ports, named) for word in command], words)
    first = [[_filled(word, ports, named) for word in one] for one in before]
    return _after(first, filled), environ, _first_page(source.definition)


def _is_command(said: Any) -> bool:
    return isinstance(said, list) and bool(said) and all(isinstance(word, str) for word in said)


def _with_arguments(command: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the command with the arguments in place of ``{arguments}``, else appended."""
    if _ARGUMENTS not in command:
        return [*command, *words]
    place = command.index(_ARGUMENTS)
    return [*command[:place], *words, *command[place + 1 :]]


def _after(before: Sequence[Sequence[str]], command: list[str]) -> list[str]:
    """Return one command that runs the others in order first, and stops at the first that fails."""
    if not before:
        return command
    return [SH, "-c", " && ".join([*map(shlex.join, before), f"exec {shlex.join(command)}"])]


def _filled(word: str, ports: tuple[int, ...], named: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[2]:
            return named[found[2]]
        number = int(found[1])
        return str(ports[number]) if number < len(ports) else found[0]

    return _PLACE.sub(value, word)


def _first_page(definition: bytes | None) -> str:
    """Return the path of the first page. Anything but a path, such as another address, becomes ``/``."""
    path = _parsed(definition).get("url_template", "/") if definition is not None else "/"
    return path if isinstance(path, str) and _PATH.match(path) else "/"


def _parsed(definition: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(definition or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadDefinition("The image's definition of this service is not JSON.") from error
    return said if isinstance(said, dict) else {}
