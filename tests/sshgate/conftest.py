"""What all tests of the SSH gate have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backendai.domain.compute.models import ComputeSession
from backendai.gates.sshgate import visit
from tests.agent.prerequisites import need_program
from tests.cast import Cast
from tests.factories import make_running_session
from tests.sshgate.stage import Stage, stage


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions whose use was noted."""
    noted: list[Any] = []
    monkeypatch.setattr(visit.meter, "touch", noted.append)
    return noted


@pytest.fixture
def here() -> Iterator[Stage]:
    need_program("ssh", "openssh-client")
    with stage() as found:
        yield found


@pytest.fixture
def key(cast: Cast, here: Stage) -> Path:
    return here.new_key("alice", cast.alice)


@pytest.fixture
def session(cast: Cast, here: Stage) -> Iterator[ComputeSession]:
    """Alice's session ``train``, which runs."""
    session = make_running_session(cast.alice, name="train")
    here.run_kernels(session)
    yield session
    for kernel in session.kernels.all():
        here.backend.remove(kernel.pk)
