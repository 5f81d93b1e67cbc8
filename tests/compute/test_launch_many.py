"""Several sessions with one launch, and ports that a session opens of its own."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.apps.of_session import apps_of
from backendai.domain.compute.services.launching.create import launch_many
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place

pytestmark = pytest.mark.django_db
SPEC = SessionSpec(image="python", name="sweep", resources={"cpu": 1, "mem": "512m"})


@pytest.fixture(autouse=True)
def world(cast: Cast) -> None:
    make_group()
    make_image(labels={"ai.backend.service-ports": "notes:http:8080"})


def test_several_sessions_get_numbers_and_belong_together(cast: Cast) -> None:
    launch_many(cast.alice, SPEC, 3, idempotency_key="once")
    again = launch_many(cast.alice, SPEC, 3, idempotency_key="once")
    assert [one.kernels for one in again] == [None] * 3
    sessions = ComputeSession.objects.order_by("name")
    assert [session.name for session in sessions] == ["sweep-1", "sweep-2", "sweep-3"]
    assert len({session.launch_id for session in sessions}) == 1


def test_all_are_launched_or_none(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="two wait", max_pending_sessions=2)
    cast.alice.save()
    with pytest.raises(Conflict):
        launch_many(cast.alice, SPEC, 3)
    assert not ComputeSession.objects.exists()


@pytest.mark.parametrize("count", [0, -1, 17])
def test_a_number_out_of_range_is_refused(cast: Cast, count: int) -> None:
    with pytest.raises(UserError) as refused:
        launch_many(cast.alice, SPEC, count)
    assert refused.value.field == "count"


def test_ports_of_its_own_become_apps_and_reach_the_kernel(cast: Cast) -> None:
    agent, session = make_agent(), make_session(cast.alice, preopen_ports=[9001, 9000])
    place(session, agent)
    kernel = session.kernels.get()
    assert [(app.name, app.protocol, app.port) for app in apps_of(session, kernel)] == [
        ("notes", "http", 8080),
        ("port-9001", "preopen", 9001),
        ("port-9000", "preopen", 9000),
    ]
    assert spec_for(agent, kernel.pk).environ["BACKENDAI_PREOPEN_PORTS"] == "9001,9000"


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        ([80], "is not between 1024 and 65535"),
        ([65536], "is not between"),
        ([8080], "belongs to the image's notes"),
        ([7681], "belongs to the platform"),
        ([9000, 9000], "is named twice"),
        (list(range(9000, 9021)), "At most 20 ports"),
    ],
)
def test_ports_that_cannot_be_opened_are_refused(cast: Cast, ports: list[int], why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        make_session(cast.alice, preopen_ports=ports)
    assert refused.value.field == "preopen_ports"
