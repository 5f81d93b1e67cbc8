"""Services of kernels without an engine: every kernel is this machine, a launch is what the test makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from backendai.agent.backends.base import KernelGone
from backendai.agent.backends.service_host import ServiceHost, ServiceSource


class FakeServices(ServiceHost):
    """``launched`` holds the commands in their order; ``on_launch`` is called with each, from another thread."""

    def __init__(self) -> None:
        self.definitions: dict[str, bytes] = {}
        self.labels: dict[str, str] = {}
        self.launched: list[list[str]] = []
        self.environ: list[dict[str, str]] = []
        self.on_launch: Callable[[Sequence[str]], None] = lambda command: None
        self.codes: dict[str, int] = {}
        self.words = b""
        self.waiting = ""
        self.percent: int | None = None
        self.arguments_before = ""
        self.is_gone = False
        self.addresses = ["127.0.0.1"]

    def define(self, service: str, **definition: object) -> None:
        """Let the image say this about a service."""
        self.definitions[service] = json.dumps(definition).encode()

    def address(self, kernel_id: UUID) -> str:
        if self.is_gone:
            raise KernelGone("It is gone.")
        return self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]

    def source(self, kernel_id: UUID, service: str) -> ServiceSource:
        return ServiceSource(self.definitions.get(service), self.labels, self.waiting, percent=self.percent)

    def launch(self, kernel_id: UUID, service: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
        self.launched.append(list(command))
        self.environ.append(dict(environ))
        self.on_launch(command)
        return f"launch-{len(self.launched)}"

    def exit_code(self, handle: str) -> int | None:
        return self.codes.get(handle)

    def log(self, kernel_id: UUID, service: str, *, limit: int) -> bytes:
        return self.arguments_before.encode() if service.endswith(".arguments") else self.words[-limit:]
