"""What somebody may still use, and which presets fit: the same numbers as the door's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project, ResourcePolicy
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.planning.amounts.allowances import Allowance
from backendai.domain.planning.amounts.availability import Availability, availability
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session

pytestmark = pytest.mark.django_db
GIB = 2**30 * 1000


def preset(name: str, **over: Any) -> ResourcePreset:
    slots = over.pop("slots", {"cpu": 1, "mem": "1g"})
    return ResourcePreset.objects.create(name=name, slots=slots, **over)


def give(holder: Any, **limits: Any) -> None:
    holder.policy = ResourcePolicy.objects.create(name=f"of {holder}", **limits)
    holder.save()


def look(cast: Cast, who: str = "alice", group: str = "default") -> Availability:
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    return availability(getattr(cast, who), project, make_group(group))


def reasons(found: Availability) -> dict[str, str | None]:
    return {fit.preset.name: fit.reason and fit.reason.code for fit in found.presets}


def test_without_policies_everything_is_unlimited_and_the_group_is_counted(cast: Cast) -> None:
    first = make_agent(cpu=4, mem="8g")
    make_agent(cpu=2, mem="4g")
    make_agent(cpu=64, mem="64g", schedulable=False)
    make_agent(cpu=64, mem="64g", status="LOST")
    make_running_session(cast.alice, first, resources={"cpu": 3, "mem": "2g"})
    found = look(cast)
    assert (found.holders, dict(found.remaining), found.remaining_sessions) == ([], {"cpu": None, "mem": None}, None)
    amounts = found.amounts
    assert (amounts.agents, amounts.total["cpu"], amounts.used["cpu"], amounts.free["cpu"]) == (2, 6000, 3000, 3000)
    assert (amounts.max_per_agent["cpu"], amounts.max_free["cpu"]) == (4000, 2000)
    assert amounts.max_free["mem"] == 6 * GIB


def test_the_strictest_holder_decides_and_what_a_policy_does_not_name_is_explicit(cast: Cast) -> None:
    make_running_session(cast.alice, make_agent(), resources={"cpu": 1, "mem": "1g"})
    give(cast.alice.key_pairs.get(), slots={"cpu": 2}, max_sessions=9)
    give(cast.alice, slots={"mem": "3g"}, max_sessions=1)
    give(cast.project, slots={"cpu": 9, "mem": "2g"}, unnamed_slots="limited")
    give(cast.project.domain, slots={"cuda.device": 4})
    found = look(cast)
    assert dict(found.remaining) == {"cpu": 1000, "mem": 1 * GIB, "cuda.device": 0}
    assert found.remaining_sessions == 0
    by_scope = {holder.scope: holder for holder in found.holders}
    assert list(by_scope) == ["key-pair", "user", "project", "domain"]
    assert by_scope["key-pair"].slots["cpu"] == Allowance(2000, 1000)
    assert by_scope["key-pair"].slots["mem"].remaining is None
    assert by_scope["project"].slots["cuda.device"] == Allowance(0, 0)
    assert by_scope["domain"].slots["cuda.device"].remaining == 4000


def test_a_limit_below_what_is_held_leaves_nothing_rather_than_less(cast: Cast) -> None:
    make_running_session(cast.alice, make_agent(), resources={"cpu": 2, "mem": "1g"})
    give(cast.alice, slots={"cpu": 1})
    assert look(cast).remaining["cpu"] == 0


def test_a_preset_fits_on_a_single_agent_or_says_why_not(cast: Cast) -> None:
    busy = make_agent(cpu=4, mem="8g")
    make_agent(cpu=4, mem="8g")
    make_running_session(cast.bob, busy, resources={"cpu": 2, "mem": "1g"})
    preset("fits")
    preset("both-halves", slots={"cpu": 4, "mem": "7g"})
    preset("too-big", slots={"cpu": 6, "mem": "1g"})
    preset("no-such-slot", slots={"cpu": 1, "mem": "1g", "cuda.device": 1})
    preset("over-my-limit", slots={"cpu": 3, "mem": "1g"}, rank=1)
    found = look(cast)
    assert reasons(found) == {
        "fits": None,
        "both-halves": None,
        "too-big": "bigger-than-any-agent",
        "no-such-slot": "bigger-than-any-agent",
        "over-my-limit": None,
    }
    make_running_session(cast.bob, make_agent(name="z", cpu=1, mem="1g"), resources={"cpu": 1, "mem": "512m"})
    give(cast.alice, slots={"cpu": 2})
    busy.schedulable = False
    busy.save()
    after = {fit.preset.name: fit.reason for fit in look(cast).presets}
    assert after["fits"] is None
    for name in ("over-my-limit", "both-halves"):
        assert after[name] and (after[name].code, after[name].never) == ("slot-limit", True)


def test_what_is_free_in_sum_but_not_on_one_agent_does_not_fit(cast: Cast) -> None:
    for _ in range(2):
        make_running_session(cast.bob, make_agent(cpu=4, mem="8g"), resources={"cpu": 2, "mem": "1g"})
    preset("three", slots={"cpu": 3, "mem": "1g"})
    found = look(cast)
    assert found.amounts.free["cpu"] == 4000
    (fit,) = found.presets
    assert fit.reason and (fit.reason.code, fit.reason.never) == ("insufficient-resources", False)
    assert "3 CPU cores requested, 2 available" in fit.reason.message


def test_the_groups_own_preset_comes_before_that_for_all_groups(cast: Cast) -> None:
    make_agent()
    own = preset("small", slots={"cpu": 2, "mem": "1g"}, resource_group=make_group())
    preset("small")
    preset("other", resource_group=make_group("far"))
    assert [fit.preset.pk for fit in look(cast).presets] == [own.pk]
    assert reasons(look(cast, group="far")) == {"other": "no-agent", "small": "no-agent"}


def test_devices_count_as_the_scheduler_counts_them(cast: Cast) -> None:
    capacity = Slots.parse({"cpu": 8, "mem": "8g", "cuda.shares": 2}).to_json()
    agent = make_agent(capacity=capacity, devices={"cuda.shares": ["a", "b"]})
    for _ in range(2):
        make_running_session(cast.bob, agent, resources={"cpu": 1, "mem": "512m", "cuda.shares": "0.6"})
    preset("half", slots={"cpu": 1, "mem": "1g", "cuda.shares": "0.4"})
    preset("most", slots={"cpu": 1, "mem": "1g", "cuda.shares": "0.9"})
    assert reasons(look(cast))["half"] is None
    assert reasons(look(cast))["most"] is not None


def test_it_asks_the_database_the_same_however_much_there_is(
    cast: Cast, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for holder in (cast.alice.key_pairs.get(), cast.alice, cast.project, cast.project.domain):
        give(holder, slots={"cpu": 50}, max_sessions=50)
    for lap in range(2):
        for number in range(3):
            agent = make_agent(devices={"cuda.device": ["a"]})
            make_running_session(cast.alice, agent, resources={"cpu": "0.5", "mem": "512m"})
            preset(f"p-{lap}-{number}")
        with django_assert_max_num_queries(11):  # two of them are the test's
            look(cast)
