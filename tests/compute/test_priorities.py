"""Another priority for a session that waits."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.priorities import set_priority
from tests.cast import Cast
from tests.factories import make_running_session, make_session

pytestmark = pytest.mark.django_db


def test_a_waiting_session_gets_another_priority_and_it_is_written_down(cast: Cast) -> None:
    session = make_session(cast.alice, name="waits")
    set_priority(session, cast.dana, 40)
    changed = ComputeSession.objects.get()
    assert (changed.priority, changed.version) == (40, session.version + 1)
    entry = AuditEntry.objects.get(action="session.set-priority")
    assert entry.details["changes"] == {"priority": [10, 40]}
    assert (entry.details["actor"], entry.details["owner"]) == ("dana@example.com", "alice@example.com")
    set_priority(changed, cast.dana, 40)
    assert AuditEntry.objects.filter(action="session.set-priority").count() == 1, "nothing was changed"


@pytest.mark.parametrize(
    ("wanted", "code"), [(-1, "invalid-priority"), (101, "invalid-priority"), (31, "priority-too-high")]
)
def test_a_priority_that_there_is_not_or_that_a_policy_forbids_changes_nothing(
    cast: Cast, wanted: int, code: str
) -> None:
    cast.project.policy = ResourcePolicy.objects.create(name="modest", max_priority=30)
    cast.project.save()
    session = ComputeSession.objects.select_related("project__domain").get(pk=make_session(cast.alice).pk)
    with pytest.raises(UserError) as refused:
        set_priority(session, cast.dana, wanted)
    assert (refused.value.field, refused.value.code) == ("priority", code)
    assert ComputeSession.objects.get().priority == 10
    set_priority(session, cast.alice, 30)


def test_what_runs_has_no_use_for_another_priority(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    with pytest.raises(Conflict) as refused:
        set_priority(session, cast.alice, 20)
    assert refused.value.code == "not-pending"
    assert not AuditEntry.objects.filter(action="session.set-priority").exists()


def test_an_owner_raises_again_only_to_what_an_administrator_has_left_them(cast: Cast) -> None:
    session = make_session(cast.alice)
    set_priority(session, cast.alice, 20)
    set_priority(session, cast.dana, 8)
    entry = AuditEntry.objects.filter(action="session.set-priority").latest("pk")
    assert entry.details["changes"] == {"priority": [20, 8], "owner_priority": [None, 8]}
    set_priority(session, cast.alice, 3)
    set_priority(session, cast.alice, 8)
    with pytest.raises(UserError) as refused:
        set_priority(session, cast.alice, 9)
    error = refused.value
    assert (error.field, error.code) == ("priority", "priority-too-high")
    assert (error.details["wanted"], error.details["limit"], error.details["scope"]) == (9, 8, "session")
    assert "9" in error.message
    assert "8" in error.message
    assert ComputeSession.objects.get().priority == 8


def test_what_an_administrator_sets_after_a_lowering_is_the_owners_new_limit(cast: Cast) -> None:
    session = make_session(cast.alice)
    set_priority(session, cast.dana, 5)
    set_priority(session, cast.dana, 40)
    set_priority(session, cast.alice, 2)
    set_priority(session, cast.alice, 40)
    with pytest.raises(UserError, match="Priority 41 requested"):
        set_priority(session, cast.alice, 41)
    set_priority(session, cast.alice, 2)
    set_priority(session, cast.dana, 2)
    with pytest.raises(UserError, match="Priority 3 requested"):
        set_priority(session, cast.alice, 3)


def test_nobody_is_held_whose_session_was_only_raised_or_who_is_a_superadmin(cast: Cast) -> None:
    raised, own = make_session(cast.alice, name="raised"), make_session(cast.dana, name="danas")
    set_priority(raised, cast.dana, 30)
    set_priority(raised, cast.alice, 50)
    set_priority(own, cast.dana, 1)
    set_priority(own, cast.dana, 60)
    assert sorted(ComputeSession.objects.values_list("priority", flat=True)) == [50, 60]


def test_the_lowering_holds_over_rest_and_in_the_queue_of_an_owner_who_is_an_administrator(
    cast: Cast, client: Client
) -> None:
    User.objects.filter(pk=cast.alice.pk).update(role=User.Role.ADMIN)
    session = make_session(cast.alice)
    set_priority(session, cast.dana, 4)
    client.force_login(cast.alice)
    answer = client.post(f"/api/v1/sessions/{session.pk}/priority/", {"priority": 6}, content_type="application/json")
    assert answer.status_code == 400
    problem = answer.json()
    assert (problem["code"], problem["field"], problem["data"]["limit"]) == ("priority-too-high", "priority", 4)
    panel = client.post(reverse("manage:queue-priority", args=[session.pk]), {"priority": "6"}, follow=True)
    assert "its owner may set at most 4" in panel.content.decode()
    assert ComputeSession.objects.get().priority == 4


def test_it_answers_over_rest(cast: Cast, client: Client) -> None:
    session = make_session(cast.alice)
    address = f"/api/v1/sessions/{session.pk}/priority/"
    client.force_login(cast.alice)
    answer = client.post(address, {"priority": 20}, content_type="application/json")
    assert (answer.status_code, answer.json()["priority"]) == (200, 20)
    assert client.post(address, {"priority": 200}, content_type="application/json").status_code == 400
    client.force_login(cast.bob)
    assert client.post(address, {"priority": 1}, content_type="application/json").status_code == 404
