"""A preview reads the front of the queue only, and says what a pass over the whole queue would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.planning import explain, snapshot
from backendai.domain.planning import preview as preview_module
from backendai.domain.planning.explain import Explanation, Verdict
from backendai.domain.planning.preview import preview
from backendai.domain.planning.queue import Newcomer, Queue, Row, columns
from backendai.portal.loops.group_pass import schedule
from tests.cast import Cast
from tests.effort import examples
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session, make_sessions

pytestmark = pytest.mark.django_db
_cores = st.sampled_from([1, 2, 3, 5])
_waiting = st.tuples(
    st.sampled_from(["alice", "bob", "charlie"]), _cores, st.sampled_from([5, 10, 15]), st.sampled_from([0, 0, 0, 1])
)
_rules = st.fixed_dictionaries(
    {
        "sequence": st.sampled_from(["fifo", "lifo", "drf", "fair-share"]),
        "backfill": st.booleans(),
        "retries_to_skip": st.sampled_from([0, 1]),
    }
)


def _whole(newcomers: Sequence[Newcomer], group: ResourceGroup, now: datetime) -> snapshot.GroupReading:
    rows = [Row._make(row) for row in columns(ComputeSession.objects.pending().filter(resource_group=group))]
    return snapshot._read(group, snapshot.rules_of(group), Queue(rows, newcomers, with_ends=group.backfill), now)


def _told(user: User, cpu: int = 1, copies: int = 1) -> Explanation:
    """Return the preview without random ids."""
    spec = SessionSpec(image="python", resources={"cpu": cpu, "mem": "64m"}, batch_timeout=None)
    found = preview(user, spec, now=timezone.now(), copies=copies)
    return replace(found, now=None, view=None, kernel_agents={})  # type: ignore[arg-type]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    agents=st.lists(_cores, min_size=1, max_size=3), held=st.integers(0, 3), queue=st.lists(_waiting, max_size=8),
    rules=_rules, passes=st.integers(1, 3), cpu=_cores, copies=st.integers(1, 3),
)  # fmt: skip
def test_it_says_what_the_whole_queue_would_say(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, agents: list[int], held: int, queue: list[tuple[str, int, int, int]],
    rules: dict[str, Any], passes: int, cpu: int, copies: int,
) -> None:  # fmt: skip
    ComputeSession.objects.all().delete()
    Agent.objects.all().delete()
    group = make_group()
    ResourceGroup.objects.filter(pk=group.pk).update(**rules, next_agent="", tries_counted_at=None)
    made = [make_agent(f"node-{number}", cpu=cores, group=group) for number, cores in enumerate(agents)]
    for agent, cores in list(zip(made, agents, strict=True))[:held]:
        make_running_session(cast.bob, agent, resources={"cpu": cores, "mem": "64m"}, batch_timeout=None)
    now = timezone.now()
    for who, cores, priority, later in queue:
        if cores <= max(agents):
            resources = {"cpu": cores, "mem": "64m"}
            kind = {"session_type": "batch", "startup_command": "true", "batch_timeout": timedelta(hours=cores)}
            due = {"starts_at": now + timedelta(days=1)} if later else {}
            make_session(getattr(cast, who), resources=resources, priority=priority, **kind, **due)
    for _ in range(passes):
        schedule(ResourceGroup.objects.get(pk=group.pk), timezone.now())
    make_image()
    quick = _told(cast.alice, cpu, copies)
    with monkeypatch.context() as patch:
        patch.setattr(preview_module, "read_for", _whole)
        patch.setattr(explain, "read_for", _whole)
        assert quick == _told(cast.alice, cpu, copies)


def test_of_a_long_queue_it_reads_the_first_and_counts_the_rest(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    make_running_session(cast.bob, make_agent(cpu=4), resources={"cpu": 4, "mem": "64m"})
    waiting = make_sessions(cast.alice, 30)
    ComputeSession.objects.filter(pk=waiting[0].pk).update(priority=20)
    schedule(make_group(), timezone.now())
    said = _told(cast.alice)
    assert (said.verdict, said.position, said.waiting, said.ahead_total) == (Verdict.WAITS, 31, 31, 30)
    assert said.ahead[0].id == waiting[0].pk
    assert len(said.ahead) == 20
    assert said.steps[0].message == "Position 31 of 31 in the order fifo."
    for _ in range(2):
        with django_assert_num_queries(22):
            _told(cast.alice)
        make_sessions(cast.charlie, 20)
        schedule(make_group(), timezone.now())
