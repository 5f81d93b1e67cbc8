"""Kernels that the database does not know: nothing of them is lost, and an administrator decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.wire.messages import KernelSighting, KernelState, SyncDown
from backendai.base.wire.messages import UnknownKernel as Told
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, UnknownKernel
from backendai.domain.compute.services.agents.adopting import adopt_session
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import work_for
from backendai.domain.compute.services.agents.unknown_kernels import note_unknown, remove_unknown
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Status
from backendai.portal.loops.group_pass import schedule
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, place, report_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def sight(kernel_id: Any, generation: int = 1, *, running: bool = True) -> KernelSighting:
    return KernelSighting(kernel_id=kernel_id, generation=generation, running=running)


def sync(agent: Agent, *seen: KernelSighting, told: tuple[Told, ...] = ()) -> SyncDown:
    """Say what an agent has, as its sync does."""
    agent.refresh_from_db()
    kept = {(one.kernel_id, one.generation) for one in told if one.kept}
    answer = work_for(agent, seen, want_images=False, kept=kept)
    note_unknown(agent, answer, told, now=timezone.now())
    return answer


def forget(session: ComputeSession) -> tuple[Told, ...]:
    """Take a running session out of the database, as a restore does; returns what its agents tell of it."""
    told = tuple(
        Told(kernel_id=kernel.pk, generation=kernel.generation, manifest=spec_for(kernel.agent, kernel.pk).manifest)
        for kernel in session.kernels.all()
    )
    Allocation.objects.filter(kernel__session=session).delete()
    session.records.all().delete()
    session.kernels.all().delete()
    ComputeSession.objects.filter(pk=session.pk).delete()
    return told


def test_what_the_database_does_not_know_goes_on(cast: Cast) -> None:
    agent, seen = make_agent(), sight(uuid4())
    answer = sync(agent, seen)
    assert (answer.unwanted, answer.unknown, answer.removals) == ([], [seen], [])
    row = UnknownKernel.objects.get()
    assert (row.agent, row.kernel_id, row.is_running, row.manifest) == (agent, seen.kernel_id, True, {})


def test_what_its_row_calls_over_is_removed_and_a_later_generation_is_not(cast: Cast) -> None:
    agent, other = make_agent(), make_agent()
    kernel = make_running_session(cast.alice, agent).kernels.get()
    stale, later = sight(kernel.pk, 0), sight(kernel.pk, 2)
    assert sync(agent, stale, sight(kernel.pk)).unwanted == [stale]
    answer = sync(other, later)
    assert (answer.unwanted, answer.unknown) == ([], [later])


def test_what_its_agent_keeps_is_not_removed_though_its_row_calls_it_over(cast: Cast) -> None:
    agent, other = make_agent(), make_agent()
    kernel = make_running_session(cast.alice, agent).kernels.get()
    told = Told(kernel_id=kernel.pk, generation=1, kept=True)
    answer = sync(other, sight(kernel.pk), told=(told,))
    assert (answer.unwanted, [one.kernel_id for one in answer.unknown]) == ([], [kernel.pk])
    assert UnknownKernel.objects.get().is_kept


def test_nothing_is_placed_beside_it_until_it_is_decided_and_the_reason_says_so(cast: Cast) -> None:
    agent, seen = make_agent(), sight(uuid4())
    sync(agent, seen)
    session = make_session(cast.alice)
    schedule(session.resource_group, timezone.now())
    session.refresh_from_db()
    assert session.status == Status.PENDING
    assert session.status_reason == "agent-fault"
    assert "1 unknown kernel runs there" in session.status_message
    sync(agent, sight(seen.kernel_id, running=False))
    schedule(session.resource_group, timezone.now() + timedelta(seconds=5))
    session.refresh_from_db()
    assert session.status == Status.SCHEDULED, "one that does not run holds no slots"


def test_its_row_goes_when_the_kernel_is_gone(cast: Cast) -> None:
    agent = make_agent()
    sync(agent, sight(uuid4()))
    sync(agent)
    assert not UnknownKernel.objects.exists()
    agent.refresh_from_db()
    assert (agent.unknown_kernels, agent.unknown_running) == (0, 0)


def test_a_sync_with_nothing_unknown_asks_for_nothing_more(cast: Cast, django_assert_num_queries: Any) -> None:
    agent = make_agent()
    kernel = make_running_session(cast.alice, agent).kernels.get()
    agent.refresh_from_db()
    with django_assert_num_queries(0):
        note_unknown(agent, SyncDown(deployment="", public_key=""), (), now=timezone.now())
    work_for(agent, [sight(kernel.pk)], want_images=False)
    with django_assert_num_queries(3):
        work_for(agent, [sight(kernel.pk)], want_images=False)


def test_a_superadmin_has_it_removed(cast: Cast) -> None:
    agent, seen = make_agent(), sight(uuid4())
    sync(agent, seen)
    row = UnknownKernel.objects.get()
    with pytest.raises(NotAllowed):
        remove_unknown(cast.alice, row, now=timezone.now())
    remove_unknown(cast.dana, row, now=timezone.now())
    answer = sync(agent, seen)
    assert (answer.removals, answer.unwanted, answer.unknown) == ([seen], [seen], [])
    with pytest.raises(Conflict, match="already"):
        remove_unknown(cast.dana, row, now=timezone.now())
    sync(agent)
    assert not UnknownKernel.objects.exists()
    assert AuditEntry.objects.filter(action="unknown-kernel.remove").count() == 1


@pytest.mark.parametrize("size", [1, 3])
def test_a_forgotten_session_is_adopted_and_runs_on(cast: Cast, size: int) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, cluster_size=size, name="thesis")
    seen = [sight(kernel.pk, kernel.generation) for kernel in session.kernels.all()]
    held = {(one.kernel_id, one.slot, one.amount) for one in Allocation.objects.all()}
    told = forget(session)
    sync(agent, *seen)
    sync(agent, *seen, told=told)
    adopted = adopt_session(cast.dana, session.pk, now=timezone.now())
    assert (adopted.pk, adopted.name, adopted.owner, adopted.project) == (
        session.pk, "thesis", cast.alice, session.project,
    )  # fmt: skip
    assert {(one.kernel_id, one.slot, one.amount) for one in Allocation.objects.all()} == held
    answer = sync(agent, *seen)
    assert {(one.kernel_id, one.generation) for one in answer.desired} == {
        (one.kernel_id, one.generation) for one in seen
    }
    assert (answer.unwanted, answer.unknown) == ([], [])
    for kernel in adopted.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c"))
    adopted.refresh_from_db()
    assert adopted.status == Status.RUNNING
    assert not UnknownKernel.objects.exists()


def test_a_session_that_waits_again_is_adopted_where_it_runs(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    kernel = session.kernels.get()
    told = Told(kernel_id=kernel.pk, generation=1, manifest=spec_for(agent, kernel.pk).manifest)
    Allocation.objects.all().delete()
    ComputeSession.objects.filter(pk=session.pk).update(status=Status.PENDING)
    Kernel.objects.filter(pk=kernel.pk).update(status=Status.PENDING, generation=0, agent=None)
    sync(agent, sight(kernel.pk))
    sync(agent, sight(kernel.pk), told=(told,))
    adopted = adopt_session(cast.dana, session.pk, now=timezone.now())
    kernel.refresh_from_db()
    assert (adopted.status, kernel.agent, kernel.generation) == (Status.SCHEDULED, agent, 1)


def unknown_session(cast: Cast, agent: Agent, **over: Any) -> ComputeSession:
    session = make_running_session(cast.alice, agent, **over)
    seen = [sight(kernel.pk, kernel.generation) for kernel in session.kernels.all()]
    told = forget(session)
    sync(agent, *seen)
    sync(agent, *seen, told=told)
    return session


def test_an_adoption_that_cannot_be_whole_writes_nothing(cast: Cast) -> None:
    agent = make_agent()
    session = unknown_session(cast, agent, cluster_size=2)
    with pytest.raises(NotAllowed):
        adopt_session(cast.alice, session.pk, now=timezone.now())
    UnknownKernel.objects.order_by("pk")[0].delete()
    with pytest.raises(Conflict, match="1 of 2 kernels"):
        adopt_session(cast.dana, session.pk, now=timezone.now())
    assert not ComputeSession.objects.filter(pk=session.pk).exists()


def test_it_is_not_adopted_where_the_ledger_has_no_room(cast: Cast) -> None:
    agent = make_agent(cpu=4)
    session = unknown_session(cast, agent, resources={"cpu": 3, "mem": "1g"})
    place(make_session(cast.bob, resources={"cpu": 2, "mem": "1g"}), agent)
    with pytest.raises(Conflict, match="no room"):
        adopt_session(cast.dana, session.pk, now=timezone.now())
    assert not ComputeSession.objects.filter(pk=session.pk).exists()
    assert UnknownKernel.objects.count() == 1


def test_it_is_not_adopted_when_the_database_has_it_running_elsewhere(cast: Cast) -> None:
    agent, other = make_agent(), make_agent()
    session = make_running_session(cast.alice, agent)
    kernel = session.kernels.get()
    told = Told(kernel_id=kernel.pk, generation=1, kept=True, manifest=spec_for(agent, kernel.pk).manifest)
    sync(other, sight(kernel.pk))
    sync(other, sight(kernel.pk), told=(told,))
    with pytest.raises(Conflict, match="can only be removed"):
        adopt_session(cast.dana, session.pk, now=timezone.now())


@pytest.mark.parametrize("manifest", ["nonsense", "a.b.c"])
def test_a_manifest_that_the_portal_did_not_sign_says_nothing(cast: Cast, manifest: str) -> None:
    agent, seen = make_agent(), sight(uuid4())
    sync(agent, seen)
    sync(agent, seen, told=(Told(kernel_id=seen.kernel_id, generation=1, manifest=manifest),))
    assert UnknownKernel.objects.get().manifest == {}


def test_a_manifest_of_another_kernel_says_nothing(cast: Cast) -> None:
    agent, seen = make_agent(), sight(uuid4())
    kernel = make_running_session(cast.alice, agent).kernels.get()
    manifest = spec_for(agent, kernel.pk).manifest
    sync(agent, seen, sight(kernel.pk))
    sync(agent, seen, sight(kernel.pk), told=(Told(kernel_id=seen.kernel_id, generation=1, manifest=manifest),))
    assert UnknownKernel.objects.get().session_id is None


def test_a_name_that_is_taken_meanwhile_gets_an_ending(cast: Cast) -> None:
    agent = make_agent()
    session = unknown_session(cast, agent, name="thesis")
    make_session(cast.alice, name="thesis")
    adopted = adopt_session(cast.dana, session.pk, now=timezone.now())
    assert adopted.name.startswith("thesis-adopted-")
