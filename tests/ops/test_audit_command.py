"""``manage.py audit`` asks the engine of its own machine, and misses no container that lies elsewhere."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models import F

from backendai.agent.loop.machine import boot_id
from backendai.domain.compute.models import ComputeSession
from backendai.ops.management.commands import audit
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

pytestmark = pytest.mark.django_db


def test_only_containers_of_this_machine_are_missed(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "containers", lambda deployment: [])
    here = {"backend": "docker", "boot_id": boot_id()}
    agents = [
        make_agent("elsewhere", **here | {"boot_id": "other"}),
        make_agent("native", **here | {"backend": "process"}),
    ]
    for agent in agents:
        make_running_session(cast.alice, agent)
    assert missed() == []
    session = make_running_session(cast.alice, make_agent("here", **here))
    assert missed() == [f"kernel {kernel} is RUNNING without a container" for kernel in kernels_of(session)]


def missed() -> list[str]:
    out = StringIO()
    with suppress(SystemExit):
        call_command("audit", stdout=out)
    return [line.strip() for line in out.getvalue().splitlines() if line.endswith("without a container")]


def kernels_of(session: ComputeSession) -> list[str]:
    return [str(pk) for pk in session.kernels.order_by(F("rank")).values_list("pk", flat=True)]
