"""Statuses that are written into a statement."""

from __future__ import annotations

import pytest
from django.db import connection

from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from tests.cast import Cast
from tests.factories import make_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def test_what_lives_and_what_waits_is_found_by_the_indexes_that_hold_nothing_else(cast: Cast) -> None:
    make_session(cast.alice, name="waits")
    live, pending = ComputeSession.objects.live().order_by(), ComputeSession.objects.pending().order_by()
    assert [one.name for one in live] == [one.name for one in pending] == ["waits"]
    assert not ComputeSession.objects.finished().exists()
    if connection.vendor == "sqlite":
        assert "session_live_status" in live.explain()
        assert "session_queue" in pending.filter(resource_group=live[0].resource_group_id).explain()


def test_a_search_of_what_has_ended_looks_at_names_in_an_index(cast: Cast) -> None:
    make_session(cast.alice, name="over")
    make_session(cast.alice, name="other")
    ComputeSession.objects.update(status=Status.TERMINATED)
    found = ComputeSession.objects.finished().filter(name__icontains="ove").order_by("-ended_at", "-id")
    assert [one.name for one in found] == ["over"]
    if connection.vendor == "sqlite":
        assert "session_last_ended" in found.values("pk").explain()


def test_what_somebody_ended_last_is_found_in_an_index_without_sorting(cast: Cast) -> None:
    make_session(cast.alice, name="over")
    ComputeSession.objects.update(status=Status.TERMINATED)
    found = ComputeSession.objects.finished().filter(owner=cast.alice).order_by("-ended_at", "-id")[:25]
    assert [one.name for one in found] == ["over"]
    if connection.vendor == "sqlite":
        plan = found.explain()
        assert "session_ended_owner" in plan
        assert "TEMP B-TREE" not in plan


def test_only_a_status_can_be_written_there() -> None:
    with pytest.raises(ValueError, match="is not a valid Status"):
        str(ComputeSession.objects.filter(status__one_of=["RUNNING') OR ('' = '"]).query)
