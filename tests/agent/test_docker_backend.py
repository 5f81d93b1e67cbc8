"""The Docker backend against a real engine: the contract."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from uuid import UUID

import pytest
from docker import APIClient

from backendai.agent.backends.base import Backend
from tests.agent.backend_contract import BackendContract
from tests.agent.contract_tools import NewSpec
from tests.agent.images import ensure_tmux_image
from tests.agent.specs import make_spec
from tests.agent.stream_contract import StreamContract

pytestmark = [pytest.mark.core, pytest.mark.docker]


def processes_of(kernel_id: UUID) -> list[str]:
    """Return the terminal and the command line of all processes in a kernel's container."""
    with closing(APIClient()) as client:
        rows = client.top(f"krn-{kernel_id}", ps_args="-eo pid,tty,args")["Processes"]
    return [f"{tty} {line}" for _, tty, line in rows]


class TestDockerBackend(BackendContract):
    """The contract, with terminals that are plain shells."""

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        return len(processes_of(kernel_id))


class TestDockerTerminalsWithTmux(StreamContract):
    """The part of the contract about streams, with an image that has tmux."""

    keeps_terminals = True

    @pytest.fixture
    def new_spec(self, engine: APIClient, deployment: str) -> NewSpec:
        return partial(make_spec, deployment=deployment, agent="n1", image=ensure_tmux_image(engine))

    def clients_of(self, backend: Backend, kernel_id: UUID) -> int:
        clients = [line for line in processes_of(kernel_id) if "new-session" in line]
        return sum(not line.startswith("?") for line in clients)  # the server has no terminal of its own
