"""A start on its way: what each phase has taken, what is usual, and what takes long now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.start_times import usual_start
from backendai.portal.web.session.phases import Start, start_of
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, place, report_of

pytestmark = pytest.mark.django_db
GIB = 2**30


def ran_before(owner: User, **seconds: float) -> None:
    """A session of the past whose start took so long."""
    session, at = make_running_session(owner), timezone.now()
    steps = []
    for name, length in seconds.items():
        end = at + timedelta(seconds=length)
        step = {"step": name.replace("_", "-"), "result": "SUCCESS", "started_at": at.isoformat()}
        steps.append(step | {"ended_at": end.isoformat()})
        at = end
    Kernel.objects.filter(session=session).update(steps=steps)


def start_at(session: ComputeSession, now: datetime) -> Start:
    session.refresh_from_db()
    start = start_of(session, list(session.kernels.select_related("agent")), now=now)
    assert start is not None
    return start


def test_it_tells_bytes_what_was_done_and_what_is_usual(cast: Cast, browse: Callable[[User], Client]) -> None:
    for create, pull in ((1.0, 0.0), (2.0, 12.0), (9.0, 0.0)):
        ran_before(cast.alice, hand_over=0.5, pull=pull, create=create)
    agent, session = make_agent("node-7"), make_session(cast.alice)
    place(session, agent)
    kernel = session.kernels.get()
    far = {"progress": 0.25, "fetched_bytes": 2 * GIB, "image_bytes": 8 * GIB}
    kernel_reported(agent, report_of(kernel, KernelState.PULLING, **far))
    start = start_at(session, timezone.now() + timedelta(seconds=30))
    assert start.now == "Agent node-7 is pulling the image, 2 GiB of 8 GiB"
    assert (start.percent, start.usual, start.starts) == (25, "2.5 s", 3)
    assert [phase.state for phase in start.phases] == ["done", "now", "next"]
    assert start.phases[0].took
    assert [phase.usual for phase in start.phases[1:]] == ["usually skipped, else 12 s", "usually 2.0 s"]
    assert start.slow == "That usually takes 12 s."
    assert sum(float(phase.width) for phase in start.phases) == pytest.approx(100, abs=0.1)
    page = browse(cast.alice).get(reverse("web:session", args=[session.pk])).content.decode()
    assert "2 GiB of 8 GiB" in page and 'aria-current="step"' in page
    assert "the median of the last 3 starts" in page


def test_it_is_told_of_the_kernel_that_is_furthest_behind(cast: Cast) -> None:
    agent, session = make_agent(), make_session(cast.alice, cluster_size=2)
    place(session, agent)
    first, second = session.kernels.all()
    kernel_reported(agent, report_of(first, KernelState.CREATING))
    assert "Sent to agent" in start_at(session, timezone.now()).now
    kernel_reported(agent, report_of(second, KernelState.CREATING))
    kernel_reported(agent, report_of(first, KernelState.RUNNING))
    start = start_at(session, timezone.now())
    assert "is creating the kernel" in start.now
    assert (start.usual, start.slow) == ("", ""), "nothing is usual yet"


def test_the_bytes_go_when_the_pull_is_over(cast: Cast) -> None:
    agent, session = make_agent(), make_session(cast.alice)
    place(session, agent)
    kernel = session.kernels.get()
    kernel_reported(agent, report_of(kernel, KernelState.PULLING, fetched_bytes=1, image_bytes=GIB))
    kernel_reported(agent, report_of(kernel, KernelState.PULLING, fetched_bytes=5, image_bytes=GIB))
    kernel.refresh_from_db()
    assert (kernel.fetched_bytes, kernel.image_bytes) == (5, GIB)
    kernel_reported(agent, report_of(kernel, KernelState.CREATING))
    kernel.refresh_from_db()
    assert (kernel.fetched_bytes, kernel.image_bytes) == (None, None)


def test_what_is_usual_is_of_this_image_and_group_and_of_at_least_three_starts(
    cast: Cast, django_assert_num_queries: Callable[..., object]
) -> None:
    ran_before(cast.alice, hand_over=0.1, create=1.0)
    ran_before(cast.bob, hand_over=0.1, create=3.0)
    one = ComputeSession.objects.first()
    assert one is not None
    assert usual_start(one.image_id, one.resource_group_id) is None
    ran_before(cast.alice, create=5.0)
    make_running_session(cast.alice, image="other")
    with django_assert_num_queries(1):
        usual = usual_start(one.image_id, one.resource_group_id)
    assert usual is not None and usual.starts == 3
    assert usual.seconds == {"hand-over": 0.1, "pull": 0.0, "create": 3.0}
    assert usual_start(one.image_id, one.resource_group_id + 1) is None


def test_nonsense_among_the_steps_is_left_out(cast: Cast) -> None:
    for _ in range(3):
        ran_before(cast.alice, create=1.0)
    Kernel.objects.update(steps=[{"step": "create"}, {"step": "pull", "started_at": "then", "result": "SUCCESS"}])
    one = ComputeSession.objects.first()
    assert one is not None and usual_start(one.image_id, one.resource_group_id) is None
