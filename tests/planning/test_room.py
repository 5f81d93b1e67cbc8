"""What the groups have: two ways of counting say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backendai.base.core.slots import Slots
from backendai.domain.planning.amounts.free import room_in, use_of
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session

pytestmark = pytest.mark.django_db


def test_what_is_taken_of_a_group_is_the_same_however_it_is_counted(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    groups = [make_group(), make_group("lab"), make_group("empty")]
    for number in range(6):
        gpus = {"cuda.device": 2} if number % 2 else {}
        capacity = Slots.parse({"cpu": 4, "mem": "8g", **gpus}).to_json()
        agent = make_agent(capacity=capacity, group=groups[number % 2])
        if number < 4:
            make_running_session(cast.alice, agent, resource_group=groups[number % 2].name)
    make_agent(group=groups[0], status="LOST")
    idle = make_agent(group=groups[1])
    make_running_session(cast.bob, idle, resource_group="lab")
    idle.schedulable = False
    idle.save()
    make_session(cast.bob, resource_group="lab")
    with django_assert_num_queries(3):
        found = use_of(groups)
    for use, room in zip(found, room_in(groups), strict=True):
        assert (use.group, use.agents, use.waiting) == (room.group, room.agents, room.waiting)
        assert (use.capacity, use.occupied) == (room.capacity, room.occupied)
    assert [use.agents for use in found] == [3, 3, 0]
