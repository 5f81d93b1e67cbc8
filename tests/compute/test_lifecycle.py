"""A session's way from the launch to the end, through the services that the real parts call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import KernelSighting, KernelState
from backendai.domain.catalog.models import ImageOnAgent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.losses import end_unconfirmed
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.compute.services.status.moves import StatusCause, move
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Phase, Status
from backendai.portal.loops.loops import run_pass
from tests.cast import Cast
from tests.controller.clocks import repair_at
from tests.factories import (
    make_agent,
    make_group,
    make_image,
    make_running_session,
    make_session,
    make_sessions,
    place,
    report_of,
)

pytestmark = pytest.mark.django_db


def only_kernel(session: ComputeSession) -> Kernel:
    return session.kernels.get()


def test_it_goes_from_pending_to_running_in_one_pass_and_one_report(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    assert run_pass(timezone.now()) == 1
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED
    kernel = only_kernel(session)
    assert (kernel.status, kernel.agent, kernel.generation) == (Status.SCHEDULED, agent, 1)
    assert occupied_by_agent() == {agent.pk: Slots.parse({"cpu": 1, "mem": "512m"})}
    assert kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="abc"))
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    assert session.started_at is not None


def test_it_gives_slots_back_when_the_node_confirms_the_end_and_not_before(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    session.refresh_from_db()
    assert session.status == Status.TERMINATING
    assert Allocation.objects.count() == 2
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, exit_code=137))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATED, "user-requested")
    assert not Allocation.objects.exists()


def test_it_cancels_a_pending_session_at_once(cast: Cast) -> None:
    session = make_session(cast.alice)
    terminate_session(session, cast.alice)
    session.refresh_from_db()
    assert session.status == Status.CANCELLED
    assert only_kernel(session).status == Status.CANCELLED
    with pytest.raises(Conflict):
        terminate_session(session, cast.alice)


def test_a_terminal_status_absorbs(cast: Cast) -> None:
    session = make_session(cast.alice)
    terminate_session(session, cast.alice)
    for status in Status:
        assert move([session.pk], status, StatusCause(Phase.REPAIR), now=timezone.now()) == set()


def test_only_one_of_two_stale_copies_moves_it(cast: Cast) -> None:
    session = make_session(cast.alice)
    why = StatusCause(Phase.TERMINATE, "user-requested")
    assert move([session.pk], Status.CANCELLED, why) == {session.pk}
    assert move([session.pk], Status.SCHEDULED, StatusCause(Phase.SCHEDULE)) == set()


def test_the_history_chains_from_status_to_status(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, exit_code=0))
    rows = SchedulingRecord.objects.filter(session=session).order_by("id").values_list("from_status", "to_status")
    assert list(rows) == [
        ("", "PENDING"),
        ("PENDING", "SCHEDULED"),
        ("SCHEDULED", "RUNNING"),
        ("RUNNING", "TERMINATING"),
        ("TERMINATING", "TERMINATED"),
    ]


def test_a_report_of_an_older_generation_changes_nothing(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    place(session, agent)
    stale = report_of(only_kernel(session), KernelState.RUNNING).model_copy(update={"generation": 0})
    assert kernel_reported(agent, stale) is False
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED


def test_a_node_cannot_speak_of_another_nodes_kernel(cast: Cast) -> None:
    session = make_running_session(cast.alice, make_agent())
    stranger = make_agent()
    with pytest.raises(NotFound):
        kernel_reported(stranger, report_of(only_kernel(session), KernelState.TERMINATED))
    with pytest.raises(NotFound):
        spec_for(stranger, only_kernel(session).pk)


@pytest.mark.parametrize("reason", ["failed-to-start", "device-lost", "accelerator-runtime-missing"])
def test_a_failed_start_is_tried_again_elsewhere_and_given_up_in_the_end(cast: Cast, reason: str) -> None:
    make_group(max_retries=1)
    first, second = make_agent("first"), make_agent("second")
    session = make_session(cast.alice)
    place(session, first)
    failure = {"reason": reason, "message": "The engine refused: no such device."}
    kernel_reported(first, report_of(only_kernel(session), KernelState.TERMINATED, **failure))
    session.refresh_from_db()
    assert (session.status, session.retries, session.avoid_agents) == (Status.PENDING, 1, [str(first.pk)])
    assert not Allocation.objects.exists()
    assert run_pass(timezone.now()) == 1
    kernel = only_kernel(session)
    assert (kernel.agent, kernel.generation) == (second, 2)
    kernel_reported(second, report_of(kernel, KernelState.TERMINATED, **failure))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.ERROR, reason)
    assert "no such device" in session.status_message
    assert not Allocation.objects.exists()


def test_an_image_that_is_nowhere_ends_the_session_with_that_reason(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    place(session, agent)
    report = report_of(
        only_kernel(session), KernelState.TERMINATED, reason="image-not-found", message="local/python:latest: not there"
    )
    kernel_reported(agent, report)
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.ERROR, "image-not-found")
    assert session.status_message == "local/python:latest: not there"


def test_an_image_that_nodes_make_themselves_is_looked_for_on_the_next_node(cast: Cast) -> None:
    without, having = make_agent("without"), make_agent("having")
    make_image("python", is_built_here=True)
    session = make_session(cast.alice)
    place(session, without)
    kernel_reported(without, report_of(only_kernel(session), KernelState.TERMINATED, reason="image-not-found"))
    ImageOnAgent.objects.create(agent=having, reference=session.image.reference)
    assert run_pass(timezone.now()) == 1
    assert only_kernel(session).agent == having


def test_it_waits_for_an_image_that_no_node_has_made_yet(cast: Cast) -> None:
    agent = make_agent()
    make_image("python", is_built_here=True)
    session = make_session(cast.alice)
    run_pass(timezone.now())
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.PENDING, "image-building")
    assert "bin/build-images" in session.status_message
    ImageOnAgent.objects.create(agent=agent, reference=session.image.reference)
    assert run_pass(timezone.now()) == 1


def test_a_main_program_that_ends_by_itself_ends_the_session_and_says_so(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, reason="exited", exit_code=3))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATED, "self-terminated")
    assert "exit code 3" in session.reason_text


@pytest.mark.parametrize(("exit_code", "result"), [(0, "SUCCESS"), (2, "FAILED")])
def test_a_batch_session_gets_its_result_from_the_exit_code(cast: Cast, exit_code: int, result: str) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, session_type="batch", startup_command="true")
    kernel_reported(
        agent, report_of(only_kernel(session), KernelState.TERMINATED, reason="exited", exit_code=exit_code)
    )
    session.refresh_from_db()
    assert (session.status, session.result) == (Status.TERMINATED, result)


@pytest.mark.parametrize(
    ("exit_code", "has_cause", "text"),
    [
        (0, True, "A process was killed."),
        (0, False, "The batch program finished."),
        (3, True, "A process was killed."),
        (3, False, "The batch program ended with exit code 3."),
        (None, False, "A process was killed."),  # without an exit code the portal has nothing to say of its own
    ],
)
def test_a_batch_session_says_what_its_agent_knows_beyond_the_exit_code(
    cast: Cast, exit_code: int | None, has_cause: bool, text: str
) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, session_type="batch", startup_command="true")
    told: dict[str, Any] = {"exit_code": exit_code, "message": "A process was killed.", "has_cause": has_cause}
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED, reason="exited", **told))
    session.refresh_from_db()
    assert session.result == ("FAILED" if exit_code != 0 else "SUCCESS")
    assert session.reason_text == text


def test_one_dead_kernel_ends_the_whole_cluster_with_its_reason(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, cluster_size=3)
    main, *subs = session.kernels.order_by("rank")
    kernel_reported(
        agent, report_of(subs[0], KernelState.TERMINATED, reason="out-of-memory", message="It had 512 MiB.")
    )
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "out-of-memory")
    assert {order.kernel_id for order in work_for(agent, [], want_images=False).stop} == {main.pk, subs[1].pk}
    for kernel in (main, subs[1]):
        kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=143))
    session.refresh_from_db()
    assert session.status == Status.TERMINATED
    assert not Allocation.objects.exists()


BATCH: dict[str, Any] = {"session_type": "batch", "startup_command": "true"}


def exited(agent: Agent, kernel: Kernel, exit_code: int) -> None:
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, reason="exited", exit_code=exit_code))


def test_a_sub_kernel_that_is_done_first_gives_its_slots_back_and_the_work_goes_on(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, cluster_size=3, **BATCH)
    main, *subs = session.kernels.order_by("rank")
    exited(agent, subs[0], 0)
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    assert not Allocation.objects.filter(kernel=subs[0]).exists()
    assert work_for(agent, [], want_images=False).stop == []
    exited(agent, main, 0)
    session.refresh_from_db()
    assert (session.status, session.result, session.status_reason) == ("TERMINATING", "SUCCESS", "task-finished")
    assert [order.kernel_id for order in work_for(agent, [], want_images=False).stop] == [subs[1].pk]
    kernel_reported(agent, report_of(subs[1], KernelState.TERMINATED, exit_code=143))
    session.refresh_from_db()
    assert session.status == Status.TERMINATED
    assert not Allocation.objects.exists()


def test_a_sub_kernel_that_fails_ends_the_work_at_once(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, cluster_size=3, **BATCH)
    _, done, failing = session.kernels.order_by("rank")
    exited(agent, done, 0)
    exited(agent, failing, 2)
    session.refresh_from_db()
    assert (session.status, session.result, session.status_reason) == ("TERMINATING", "FAILED", "task-failed")
    assert "sub2: The batch program ended with exit code 2." in session.status_message


def test_a_sub_kernel_may_be_done_before_the_main_one_runs(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice, cluster_size=2, **BATCH)
    place(session, agent)
    main, sub = session.kernels.order_by("rank")
    kernel_reported(agent, report_of(sub, KernelState.RUNNING))
    exited(agent, sub, 0)
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED
    kernel_reported(agent, report_of(main, KernelState.RUNNING))
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_what_is_done_is_done_again_when_the_node_of_the_main_kernel_is_lost(cast: Cast) -> None:
    near, far = make_agent("near"), make_agent("far")
    session = make_running_session(cast.alice, near, cluster_size=2, retry_on_agent_loss=True, **BATCH)
    main, sub = session.kernels.order_by("rank")
    exited(near, sub, 0)
    Kernel.objects.filter(pk=main.pk).update(agent=far)
    end_unconfirmed(Kernel.objects.filter(pk=main.pk), "agent-lost", "{} is lost".format, now=timezone.now())
    session.refresh_from_db()
    assert (session.status, session.avoid_agents) == (Status.PENDING, [str(far.pk)])
    assert set(session.kernels.values_list("status", "exit_code")) == {("PENDING", None)}


@pytest.mark.parametrize(("again", "status"), [(True, Status.PENDING), (False, Status.ERROR)])
def test_a_batch_session_on_a_lost_node_of_a_cluster_runs_again_if_asked(
    cast: Cast, again: bool, status: Status
) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, retry_on_agent_loss=again, **BATCH)
    report = report_of(only_kernel(session), KernelState.TERMINATED, reason="node-lost", message="Gone.")
    kernel_reported(agent, report)
    session.refresh_from_db()
    assert session.status == status


def test_a_cluster_runs_when_all_its_kernels_run(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice, cluster_size=2)
    place(session, agent)
    main, sub = session.kernels.order_by("rank")
    kernel_reported(agent, report_of(main, KernelState.RUNNING))
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED
    kernel_reported(agent, report_of(sub, KernelState.RUNNING))
    session.refresh_from_db()
    assert session.status == Status.RUNNING


def test_a_lost_agent_keeps_what_may_still_run_until_it_answers(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    later = timezone.now() + timedelta(seconds=90)
    repair_at(later, silent=(agent,))
    agent.refresh_from_db()
    assert agent.status == "LOST"
    repair_at(later + timedelta(minutes=6), silent=(agent,))
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "agent-lost")
    assert only_kernel(session).is_unconfirmed
    assert Allocation.objects.count() == 2
    kernel_reported(agent, report_of(only_kernel(session), KernelState.TERMINATED))
    session.refresh_from_db()
    assert session.status == Status.ERROR
    assert not Allocation.objects.exists()


def test_an_administrator_may_give_up_on_a_silent_node_and_is_told_what_that_means(cast: Cast) -> None:
    agent = make_agent("gpu-01", status="LOST")
    session = make_running_session(cast.alice, make_agent("gpu-02"))
    Kernel.objects.filter(session=session).update(agent=agent)
    terminate_session(session, cast.alice, force=True)
    session.refresh_from_db()
    assert session.status == Status.TERMINATING
    terminate_session(session, cast.dana, force=True)
    session.refresh_from_db()
    assert session.status == Status.TERMINATED
    assert "may still run" in only_kernel(session).status_message
    assert not Allocation.objects.exists()


def test_the_node_is_told_what_to_start_to_stop_and_to_forget(cast: Cast) -> None:
    agent = make_agent()
    waiting, ending = make_session(cast.alice), make_running_session(cast.alice, agent)
    place(waiting, agent)
    terminate_session(ending, cast.alice)
    stray = KernelSighting(kernel_id="6f1c6c0e-5d0e-4b5e-9a3c-111111111111", generation=1, running=True)
    work = work_for(agent, [stray], want_images=False)
    assert [(kernel.kernel_id, kernel.started) for kernel in work.desired] == [(only_kernel(waiting).pk, False)]
    assert [order.kernel_id for order in work.stop] == [only_kernel(ending).pk]
    assert (work.unwanted, work.unknown) == ([], [stray]), "what it does not know, the portal does not end"
    assert spec_for(agent, only_kernel(waiting).pk).environ["BACKENDAI_SESSION_NAME"] == waiting.name


def test_the_same_idempotency_key_gives_the_same_session(cast: Cast) -> None:
    make_session(cast.alice)
    spec = SessionSpec(image="python")
    first = create_session(cast.alice, spec, idempotency_key="k")
    assert create_session(cast.alice, spec, idempotency_key="k").pk == first.pk
    assert create_session(cast.bob, spec, idempotency_key="k").pk != first.pk
    with pytest.raises(Conflict, match="another request"):
        create_session(cast.alice, SessionSpec(image="python", name="something-else"), idempotency_key="k")


@pytest.mark.parametrize(
    ("over", "field", "code", "numbers"),
    [
        ({"name": "ab"}, "name", "invalid-name", "2 given"),
        ({"name": "-abc"}, "name", "invalid-name", "Begin"),
        ({"name": "a b c d"}, "name", "invalid-name", "A space"),
        ({"name": "abcd-"}, "name", "invalid-name", "End"),
        ({"name": "abc\n"}, "name", "invalid-name", "not allowed"),
        ({"name": "x" * 65}, "name", "invalid-name", "65 given"),
        ({"resources": {"cpu": 1, "mem": "32m"}}, "resources.mem", "below-minimum", "64 MiB"),
        ({"resources": {"cpu": 0, "mem": "1g"}}, "resources.cpu", "below-minimum", "0.1"),
        ({"resources": {"cpu": 64, "mem": "1g"}}, "resources.cpu", "bigger-than-any-agent", "more than 4"),
        (
            {"resources": {"cpu": 3, "mem": "1g"}, "cluster_size": 2},
            "resources.cpu",
            "bigger-than-any-agent",
            "6 CPU cores requested",
        ),
        ({"resources": {"cpu": "-1"}}, "resources.cpu", "invalid-amount", "-1"),
        ({"resources": {"cpu": "nan"}}, "resources.cpu", "invalid-amount", "nan"),
        ({"resources": {"mem": "12 parsecs"}}, "resources.mem", "invalid-amount", "parsecs"),
        ({"resource_group": "secret"}, "resource_group", "resource-group-not-allowed", "default"),
        ({"shm": "1g"}, "shm", "shm-too-large", "512 MiB"),
        ({"session_type": "batch"}, "startup_command", "missing-command", "command"),
        ({"startup_command": "true"}, "startup_command", "batch-only", "batch"),
        ({"environ": {"1A": "x"}}, "environ", "invalid-variable", "1A"),
        ({"environ": {f"A{number}": "x" * 8192 for number in range(8)}}, "environ", "invalid-variable", "65536"),
        ({"cluster_size": 99}, "cluster_size", "invalid-cluster-size", "16"),
        ({"preset": "huge"}, "preset", "unknown-preset", "huge"),
        ({"project": "nowhere"}, "project", "no-project", "nowhere"),
    ],
)
def test_a_request_that_cannot_be_met_names_field_number_and_limit(
    cast: Cast, over: dict, field: str, code: str, numbers: str
) -> None:
    make_agent(group=make_group())
    group = make_group("secret", is_public=False)
    assert group
    with pytest.raises(UserError) as caught:
        make_session(cast.alice, **over)
    assert (caught.value.field, caught.value.code) == (field, code)
    assert numbers in caught.value.message
    assert not ComputeSession.objects.exists()


def test_an_unknown_image_is_refused_by_name(cast: Cast) -> None:
    make_group()
    with pytest.raises(UserError, match="Image 'cobol' not found"):
        create_session(cast.alice, SessionSpec(image="cobol"))


def test_a_name_in_use_is_refused_and_free_again_after_the_end(cast: Cast) -> None:
    first = make_session(cast.alice, name="training")
    with pytest.raises(Conflict) as caught:
        make_session(cast.alice, name="training")
    assert caught.value.details["session"] == str(first.pk)
    make_session(cast.bob, name="training")
    terminate_session(first, cast.alice)
    make_session(cast.alice, name="training")


def test_more_than_is_free_now_waits_and_says_why(cast: Cast) -> None:
    make_agent(cpu=4)
    first = make_session(cast.alice, resources={"cpu": 3, "mem": "1g"})
    second = make_session(cast.bob, resources={"cpu": 2, "mem": "1g"})
    assert run_pass(timezone.now()) == 1
    second.refresh_from_db()
    assert (second.status, second.status_reason) == (Status.PENDING, "insufficient-resources")
    assert "CPU cores" in second.status_message
    first.refresh_from_db()
    assert first.status == Status.SCHEDULED


def test_with_no_agent_it_waits_for_one(cast: Cast) -> None:
    session = make_session(cast.alice)
    run_pass(timezone.now())
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.PENDING, "no-agent")


def test_one_unchanged_reason_over_many_passes_is_one_row_with_a_count(cast: Cast) -> None:
    session = make_session(cast.alice)
    for _ in range(20):
        run_pass(timezone.now())
    rows = SchedulingRecord.objects.filter(session=session, error_code="no-agent")
    assert [row.attempts for row in rows] == [20]


def test_a_plan_made_from_an_old_picture_cannot_overfill_an_agent(cast: Cast) -> None:
    agent = make_agent(cpu=1)
    first, second = make_session(cast.alice), make_session(cast.alice)
    place(first, agent)
    place(second, agent)
    assert (first.status, second.status) == (Status.SCHEDULED, Status.PENDING)


def test_a_pass_takes_a_fixed_number_of_queries(cast: Cast, django_assert_max_num_queries) -> None:
    agent = make_agent(cpu=100, mem="100g")
    assert agent
    make_session(cast.alice)
    run_pass(timezone.now())  # makes the lease rows
    for _ in range(5):
        make_session(cast.alice)
    with django_assert_max_num_queries(40) as few:
        assert run_pass(timezone.now()) == 5
    make_sessions(cast.alice, 25)
    with django_assert_max_num_queries(40) as many:
        assert run_pass(timezone.now()) == 25
    assert len(few.captured_queries) == len(many.captured_queries)
