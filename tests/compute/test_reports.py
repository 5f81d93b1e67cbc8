"""Many reports in one call: the outcome of one after the other, in a number of statements that does not grow."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.life.reports import ReceivedReport, Verdict, kernels_reported
from backendai.domain.compute.status import Result, Status
from tests.cast import Cast
from tests.effort import examples, some
from tests.factories import make_agent, make_group, make_session, make_sessions, place, place_all

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

S = KernelState
Outcome = tuple[list[Verdict], list[list[dict[str, Any]]]]
_RANDOM = {"uid", "id", "version"}  # a version need only grow
_ENDS: list[dict[str, Any]] = [
    {"exit_code": 0, "reason": "exited"},
    {"exit_code": 3, "reason": "exited"},
    {"exit_code": 137, "reason": "out-of-memory", "message": "It used more than 512 MiB."},
    {"reason": "failed-to-start", "message": "No room in /tmp."},
    {"reason": "image-not-found", "message": "local/python:latest does not exist."},
    {},
]


@some("seed", range(examples(40)))
def test_one_call_leaves_the_database_as_one_call_for_each_does(cast: Cast, seed: int) -> None:
    dice = random.Random(seed)
    agents = [make_agent(f"node-{number}", cpu=100, mem="100g") for number in range(3)]
    make_group(max_retries=dice.choice([0, 1]))
    for number in range(5):
        make_placed(cast, dice, agents, number)
    now = timezone.now() + timedelta(seconds=1)
    for _ in range(3):
        kernels = list(Kernel.objects.select_related("agent").order_by("session__name", "rank"))
        words = [word for word in (make_word(dice, agents, kernels) for _ in range(dice.randint(1, 12))) if word]
        wanted = tried(one_by_one, words, now)
        assert (kernels_reported(words, now=now), dump()) == wanted
        now += timedelta(seconds=1)


def test_it_refuses_foreign_kernels_and_keeps_to_what_the_others_say(cast: Cast) -> None:
    own, other = make_agent(), make_agent()
    mine, theirs = running(cast, own), running(cast, other)
    verdicts = reported(ReceivedReport(own, end_of(theirs)), ReceivedReport(own, end_of(mine)))
    assert verdicts == [Verdict.FOREIGN, Verdict.APPLIED]
    assert statuses(mine, theirs) == [Status.TERMINATED, Status.RUNNING]


def test_a_word_about_an_older_generation_changes_nothing(cast: Cast) -> None:
    agent = make_agent()
    old, new = running(cast, agent), running(cast, agent)
    Kernel.objects.filter(pk=old.pk).update(generation=7)
    assert reported(ReceivedReport(agent, end_of(old)), ReceivedReport(agent, end_of(new))) == [
        Verdict.STALE,
        Verdict.APPLIED,
    ]
    assert statuses(old, new) == [Status.RUNNING, Status.TERMINATED]


def test_a_doubled_message_is_harmless(cast: Cast) -> None:
    agent = make_agent()
    kernels = [running(cast, agent) for _ in range(3)]
    words = [ReceivedReport(agent, end_of(kernel)) for kernel in kernels]
    assert reported(*words, *words) == [Verdict.APPLIED] * 6
    rows = SchedulingRecord.objects.count()
    assert reported(*words) == [Verdict.APPLIED] * 3
    assert SchedulingRecord.objects.count() == rows
    assert not Allocation.objects.exists()


def test_a_kernel_may_begin_and_end_within_one_call(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice, session_type="batch", startup_command="true")
    place(session, agent)
    kernel = session.kernels.get()
    started_at = KernelReport(kernel_id=kernel.pk, generation=1, state=S.RUNNING, container_id="c1")
    reported(ReceivedReport(agent, started_at), ReceivedReport(agent, end_of(kernel, exit_code=0, reason="exited")))
    session.refresh_from_db()
    assert (session.status, session.result) == (Status.TERMINATED, Result.SUCCESS)
    history = list(session.records.order_by("id").values_list("to_status", flat=True))
    assert history == ["PENDING", "SCHEDULED", "RUNNING", "TERMINATING", "TERMINATED"]


def test_the_number_of_statements_does_not_grow_with_the_reports(cast: Cast) -> None:
    agent = make_agent(cpu=1000, mem="1000g")
    counts = {}
    for number in (10, 200):
        sessions = make_sessions(cast.alice, number, session_type="batch", startup_command="true")
        place_all(sessions, agent)
        kernels = list(Kernel.objects.filter(session__in=sessions))
        starts = [KernelReport(kernel_id=one.pk, generation=1, state=S.RUNNING, container_id="c") for one in kernels]
        ends = [end_of(one, exit_code=place_ % 3, reason="exited") for place_, one in enumerate(kernels)]
        counts[number] = [
            statements(lambda some=some: reported(*(ReceivedReport(agent, one) for one in some)))
            for some in (starts, ends)
        ]
        assert set(statuses(*kernels)) == {Status.TERMINATED}
    assert counts[10] == counts[200]


def make_placed(cast: Cast, dice: random.Random, agents: Sequence[Agent], number: int) -> None:
    kind = dice.choice(["interactive", "batch"])
    command = {"startup_command": "true"} if kind == "batch" else {}
    session = make_session(
        cast.alice, session_type=kind, cluster_size=dice.choice([1, 1, 2, 3]), name=f"run-{number}", **command
    )
    place(session, dice.choice(agents))
    Kernel.objects.filter(session=session).update(is_held=False)  # agents report no kernel that they may not start yet


def make_word(dice: random.Random, agents: Sequence[Agent], kernels: Sequence[Kernel]) -> ReceivedReport | None:
    kernel = dice.choice(kernels)
    states = [S.PULLING, S.CREATING, S.RUNNING, S.RUNNING, S.RUNNING, S.TERMINATED]
    state = dice.choice(states)
    told = dice.choice(_ENDS) if state == S.TERMINATED else {"progress": dice.choice([None, 0.5]), "message": "So."}
    agent = dice.choice(agents) if dice.random() < 0.1 else kernel.agent
    if agent is None:
        return None
    generation = kernel.generation - (dice.random() < 0.1)
    return ReceivedReport(agent, KernelReport(kernel_id=kernel.pk, generation=generation, state=state, **told))


def one_by_one(words: Sequence[ReceivedReport], now: datetime) -> list[Verdict]:
    return [kernels_reported([word], now=now)[0] for word in words]


def tried(
    work: Callable[[Sequence[ReceivedReport], datetime], list[Verdict]], words: Sequence[ReceivedReport], now: datetime
) -> Outcome:
    """Return what the work gives and leaves behind, and undo it."""
    with transaction.atomic():
        verdicts, left = work(words, now), dump()
        transaction.set_rollback(True)
    return verdicts, left


def dump() -> list[list[dict[str, Any]]]:
    tables: list[tuple[Any, tuple[str, ...]]] = [
        (ComputeSession, ("pk",)),
        (Kernel, ("pk",)),
        (Allocation, ("kernel_id", "slot")),
        (SchedulingRecord, ("session", "id")),
    ]
    return [
        [
            {name: value for name, value in row.items() if name not in _RANDOM}
            for row in model.objects.order_by(*by).values()
        ]
        for model, by in tables
    ]


def running(cast: Cast, agent: Agent) -> Kernel:
    session = make_session(cast.alice, resources={"cpu": "0.1", "mem": "64m"})
    place(session, agent)
    kernel: Kernel = session.kernels.get()
    reported(ReceivedReport(agent, KernelReport(kernel_id=kernel.pk, generation=1, state=S.RUNNING, container_id="c")))
    return kernel


def end_of(kernel: Kernel, **told: Any) -> KernelReport:
    return KernelReport(kernel_id=kernel.pk, generation=1, state=S.TERMINATED, **told)


def reported(*words: ReceivedReport) -> list[Verdict]:
    return kernels_reported(words, now=timezone.now())


def statuses(*kernels: Kernel) -> list[str]:
    found = Kernel.objects.in_bulk([kernel.pk for kernel in kernels])
    return [found[kernel.pk].status for kernel in kernels]


def statements(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        work()
    return len(captured)
