"""What a start did, step by step, in the row of the history that it ends with."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.base.core.durations import describe_duration
from backendai.base.wire.messages import KernelState
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.status.steps import full_steps
from tests.cast import Cast
from tests.factories import make_agent, make_session, place, report_of


def told(session: ComputeSession, **row: str) -> list[tuple[str, str, str]]:
    record = SchedulingRecord.objects.get(session=session, **row)
    return [(step["step"], step["result"], step["message"]) for step in full_steps(record)]


@pytest.mark.django_db
def test_a_start_with_a_pull_tells_how_long_each_step_took(cast: Cast) -> None:
    agent, session = make_agent("node-1"), make_session(cast.alice)
    place(session, agent)
    kernel, now = session.kernels.get(), timezone.now() + timedelta(seconds=1)
    kernel.changed_at = now
    kernel.save()
    for seconds, state in ((0.5, KernelState.PULLING), (3.7, KernelState.CREATING), (4.5, KernelState.RUNNING)):
        kernel_reported(agent, report_of(kernel, state), now=now + timedelta(seconds=seconds))
    assert told(session, to_status="RUNNING") == [
        ("hand-over", "SUCCESS", "main1 on node-1: 0.5 s"),
        ("pull", "SUCCESS", "main1 on node-1: 3.2 s"),
        ("create", "SUCCESS", "main1 on node-1: 0.8 s"),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(("start", "making"), [(0.4, "0.4"), (1e9, "2.0"), (float("nan"), "0.0"), (-5.0, "0.0")])
def test_a_start_in_one_report_believes_the_node_within_the_time_it_had(cast: Cast, start: float, making: str) -> None:
    agent, session = make_agent("node-1"), make_session(cast.alice)
    place(session, agent)
    kernel = session.kernels.get()
    report = report_of(kernel, KernelState.RUNNING, timings={"start": start})
    kernel_reported(agent, report, now=kernel.changed_at + timedelta(seconds=2))
    assert told(session, to_status="RUNNING")[1] == ("create", "SUCCESS", f"main1 on node-1: {making} s")


@pytest.mark.django_db
def test_every_kernel_of_a_cluster_tells_its_steps_by_host_name(cast: Cast) -> None:
    agent, session = make_agent("node-1"), make_session(cast.alice, cluster_size=2)
    place(session, agent)
    for kernel in session.kernels.order_by("-rank"):
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING))
    hosts = [message.split(" ")[0] for _, _, message in told(session, to_status="RUNNING")]
    assert hosts == ["main1", "main1", "sub1", "sub1"]


@pytest.mark.django_db
def test_trouble_of_a_kernel_stands_in_the_sessions_row_with_its_host_name(cast: Cast) -> None:
    agent, session = make_agent("node-1"), make_session(cast.alice, cluster_size=2)
    place(session, agent)
    sub = session.kernels.get(rank=1)
    report = report_of(sub, KernelState.TERMINATED, reason="name-taken", message="It is there already.")
    kernel_reported(agent, report, now=sub.changed_at + timedelta(seconds=3))
    session.refresh_from_db()
    assert session.status_message == "sub1: It is there already."
    assert told(session, error_code="name-taken") == [
        ("hand-over", "FAILURE", "sub1 on node-1: 3.0 s. It is there already.")
    ]


@pytest.mark.django_db
def test_the_steps_of_a_start_that_is_tried_again_are_its_own(cast: Cast) -> None:
    first, second = make_agent("first"), make_agent("second")
    session = make_session(cast.alice)
    place(session, first)
    failed = report_of(session.kernels.get(), KernelState.TERMINATED, reason="failed-to-start", message="No.")
    kernel_reported(first, failed)
    assert told(session, result="NEED_RETRY")[0][1] == "FAILURE"
    place(session, second)
    kernel_reported(second, report_of(session.kernels.get(), KernelState.RUNNING))
    assert {message.split(" ")[2] for _, _, message in told(session, to_status="RUNNING")} == {"second:"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (119, "119 s"), (120, "2 min"), (3660, "1 h 1 min"), (90061, "1 d 1 h"), (86405, "1 d")],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: int, text: str) -> None:
    assert describe_duration(timedelta(seconds=seconds)) == text
