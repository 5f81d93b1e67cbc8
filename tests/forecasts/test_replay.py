"""Replays of recorded sessions: traces of others, one's own history, and the live scheduler's decisions."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.traces import csv_jobs, own_jobs, sacct_jobs, swf_jobs
from backendai.ops.management.commands import replay as replay_command
from backendai.portal.loops.group_pass import schedule
from backendai.scheduler.forecasts.replay import Job, Outcome, replay
from backendai.scheduler.snapshot import AgentView, Rules
from tests.effort import some
from tests.factories import copy_of, make_agent, make_group, make_session

AT = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
SWF = """; UnixStartTime: 1000000000
;  MaxProcs: 128
1 0 -1 3600 8 -1 -1 8 7200 -1 1 3 1 -1 1 -1 -1 -1

2 60 5 -1 8 -1 -1 8 7200 -1 0 3 1 -1 1 -1 -1 -1
3 90 5 100.5 -1 -1 -1 4 -1 1024 1 4 1 -1 1 -1 -1 -1
"""
SACCT = """JobID|User|Submit|Elapsed|AllocTRES|NNodes|Timelimit|State
10|ann|2026-01-05T08:00:00|1-02:03:04|billing=8,cpu=8,gres/gpu=2,mem=64G,node=2|2|2-00:00:00|COMPLETED
10.batch|ann|2026-01-05T08:00:00|02:03:04|cpu=8,mem=64G|1||COMPLETED
11|bob|2026-01-05T08:10:00|00:00:00||1|01:00:00|CANCELLED
"""


def agents(number: int, **capacity: Any) -> list[AgentView]:
    amounts = Slots.parse(capacity or {"cpu": 8})
    return [AgentView(UUID(int=each + 1), f"agent-{each}", "", amounts, Slots()) for each in range(number)]


def job(number: int, after: timedelta, length: timedelta = HOUR, cpu: int = 8, user: str = "ann", **over: Any) -> Job:
    return Job(number, user, AT + after, length, Slots.parse({"cpu": cpu}), **over)


def test_jobs_wait_for_each_other_as_the_capacity_allows() -> None:
    found = replay([job(1, 0 * HOUR), job(2, 0 * HOUR), job(3, HOUR / 2)], agents(1), Rules())
    waits = [found.starts[number] - AT for number in (1, 2, 3)]
    assert waits[0] == timedelta(0)
    assert [round(wait / HOUR) for wait in waits[1:]] == [1, 2]
    assert 0.99 < found.used["cpu"] <= 1
    assert found.never == 0


def test_backfill_lets_a_short_job_pass_a_blocked_one() -> None:
    limited = {"limit": HOUR}
    jobs = [
        job(1, 0 * HOUR, 2 * HOUR, cpu=4, limit=2 * HOUR), job(2, timedelta(minutes=1), cpu=8, **limited),
        job(3, timedelta(minutes=2), HOUR / 2, cpu=4, **limited),
    ]  # fmt: skip
    strict, backfilled = (replay(jobs, agents(1), Rules(backfill=on)) for on in (False, True))
    assert backfilled.starts[3] - AT < HOUR < strict.starts[3] - AT
    assert backfilled.starts[2] == strict.starts[2]


def test_what_no_agent_can_hold_never_starts_and_stops_nothing() -> None:
    found = replay([job(1, 0 * HOUR, cpu=99), job(2, HOUR)], agents(1), Rules())
    assert (found.never, set(found.starts)) == (1, {2})


def test_a_swf_trace_with_odd_fields_is_read() -> None:
    first, second = swf_jobs(SWF.splitlines())
    assert (first.submitted, first.length, first.limit) == (datetime.fromtimestamp(1e9, UTC), HOUR, 2 * HOUR)
    assert dict(first.slots.items()) == {"cpu": 8000}
    assert (second.length.total_seconds(), second.limit, second.user) == (100.5, None, "4")
    assert second.slots["mem"] == 4 * 2**20 * 1000


def test_a_dump_of_sacct_is_read_without_steps_and_jobs_that_never_ran() -> None:
    (one,) = sacct_jobs(SACCT.splitlines())
    assert (one.kernels, one.length, one.limit) == (2, timedelta(days=1, hours=2, minutes=3, seconds=4), 48 * HOUR)
    assert one.slots.to_json() == {"cpu": "4", "cuda.device": "1", "mem": str(32 * 2**30)}


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (swf_jobs, "1 2 3", "Line 1: 3 fields instead of 18"),
        (swf_jobs, SWF + "4 x", "Line 7: 'x' is not a number"),
        (swf_jobs, SWF.replace("3600", "nan"), "Line 3: nan is out of range"),
        (sacct_jobs, SACCT.replace("1-02:03:04", "soon"), "Line 2: 'soon' is not a length"),
        (sacct_jobs, "JobID|User\n1|ann", "Line 2: Submit, Elapsed missing"),
        (csv_jobs, "user,submitted,seconds\nann,yesterday,5", "Line 2: 'yesterday' is not a time"),
        (csv_jobs, "user,submitted,seconds,cpu\nann,2026-01-05,5,many", "many"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(read: Any, text: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        list(read(text.splitlines()))
    assert told in str(refused.value.message)


@pytest.mark.django_db
def test_own_history_is_replayed_with_more_agents(cast: Any, tmp_path: Path) -> None:
    make_agent("node-1", cpu=1)
    first, now = make_session(cast.alice), timezone.now()
    ComputeSession.objects.bulk_create(
        copy_of(
            first, name=f"past-{number}", status=Status.TERMINATED, created_at=now - 9 * HOUR + number * HOUR / 60,
            started_at=now - 8 * HOUR, ended_at=now - 7 * HOUR,
        )
        for number in range(4)
    )  # fmt: skip
    first.delete()
    assert len(list(own_jobs(first.resource_group, now - 10 * HOUR))) == 4
    out = io.StringIO()
    call_command("replay", "--own", "1", "--strategy", "fifo,lifo", "--format", "json", stdout=out)
    alone = json.loads(out.getvalue())
    assert [(row["policy"], row["jobs"]) for row in alone] == [("fifo", 4), ("lifo", 4)]
    assert 2.9 * 3600 < alone[0]["wait_max_s"] < 3 * 3600
    assert [row["moved"] for row in alone] == [0, 2]  # the first runs first, and the middle of three stays there
    more = io.StringIO()
    call_command("replay", "--own", "1", "--agents", "+3 x cpu=1,mem=8g", "--format", "json", stdout=more)
    assert json.loads(more.getvalue())[0]["wait_max_s"] == 0
    trace = tmp_path / "trace.swf"
    trace.write_text(SWF)
    table = io.StringIO()
    call_command("replay", "--swf", str(trace), "--agents", "2 x cpu=8,mem=64g", "--backfill", "on,off", stdout=table)
    assert "fifo + backfill" in table.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--swf", "/nowhere", "--agents", "1 x cpu=1"], "No such file"),
        (["--own", "1"], "The group has no agents|There is no resource group"),
        (["--own", "1", "--agents", "many"], "are written as"),
        (["--own", "1", "--agents", "1 x cpu=1", "--strategy", "best"], "best"),
        (["--own", "1", "--agents", "1 x cpu=1", "--backfill", "maybe"], "on, off"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(asked: list[str], told: str, cast: Any) -> None:
    make_session(cast.alice)
    with pytest.raises(CommandError, match=told):
        call_command("replay", *asked)


@pytest.mark.django_db
@some(("sequence", "backfill"), [("lifo", "off"), ("drf", "off"), ("fifo", "on")], 1)
def test_a_day_that_the_scheduler_has_decided_is_replayed_in_the_same_order(
    cast: Any, sequence: str, backfill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = timezone.now() - timedelta(days=1)
    group = make_group(sequence=sequence, backfill=backfill == "on")
    for name in ("node-1", "node-2", "node-3"):
        make_agent(name, cpu=4)
    live = _live_day(cast, group, began)
    told: list[Outcome] = []
    real = replay_command.replay

    def listen(*args: Any) -> Outcome:
        told.append(real(*args))
        return told[-1]

    monkeypatch.setattr(replay_command, "replay", listen)
    rules = ("--strategy", sequence, "--backfill", backfill)
    call_command("replay", "--own", "3", *rules, "--format", "json", stdout=io.StringIO())
    replayed = sorted(told[0].starts, key=lambda number: (told[0].starts[number], number))
    order = sorted(live, key=lambda number: (live[number], number))
    same = sum(one == other for one, other in zip(order, replayed, strict=True))
    assert len(order) == DAY and max(live[n] for n in order) - began > timedelta(hours=10)
    assert same >= 0.99 * DAY, f"{same} of {DAY}"
    waits = [number for number in order if told[0].starts[number] - live[number] > timedelta(minutes=1)]
    assert len(waits) <= DAY / 100


DAY = 120


def _live_day(cast: Any, group: Any, began: datetime) -> dict[int, datetime]:
    """Let the live scheduler decide for a day, on its database and a clock of its own; returns the starts by the
    number of the launch."""
    chance = random.Random(7)
    coming = [began + timedelta(minutes=chance.uniform(0, 600)) for _ in range(DAY)]
    sessions: dict[Any, timedelta] = {}
    ends: list[tuple[datetime, Any]] = []
    starts: dict[Any, datetime] = {}
    for created_at in sorted(coming):
        owner = chance.choice([cast.alice, cast.bob])
        session = make_session(owner, resources={"cpu": chance.choice([1, 2, 4]), "mem": "512m"})
        sessions[session.pk] = timedelta(minutes=chance.uniform(5, 60))
        rows = ComputeSession.objects.filter(pk=session.pk)
        rows.update(created_at=created_at, status=Status.CANCELLED, batch_timeout=timedelta(hours=1))
    arrivals = sorted(ComputeSession.objects.values_list("created_at", "pk"))
    numbers = {pk: pk.int for _, pk in arrivals}
    while arrivals or ends or ComputeSession.objects.pending().exists():
        now = min([at for at, _ in [*arrivals[:1], *sorted(ends)[:1]]]) + timedelta(seconds=2)
        for at, pk in [each for each in ends if each[0] <= now]:
            ends.remove((at, pk))
            Allocation.objects.filter(kernel__session=pk).delete()
            Kernel.objects.filter(session=pk).update(status=Status.TERMINATED)
            ComputeSession.objects.filter(pk=pk).update(status=Status.TERMINATED, ended_at=at)
        while arrivals and arrivals[0][0] <= now:
            ComputeSession.objects.filter(pk=arrivals.pop(0)[1]).update(status=Status.PENDING)
        schedule(group, now)
        for pk in ComputeSession.objects.filter(status=Status.SCHEDULED).values_list("pk", flat=True):
            starts[pk] = now
            ends.append((now + sessions[pk], pk))
            Kernel.objects.filter(session=pk).update(status=Status.RUNNING)
            limit = now + timedelta(hours=1)
            ComputeSession.objects.filter(pk=pk).update(status=Status.RUNNING, started_at=now, ends_at=limit)
    return {numbers[pk]: at for pk, at in starts.items()}
