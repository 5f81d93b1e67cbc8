"""Another priority for a session that waits."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from backendai.accounts.models import ResourcePolicy
from backendai.activity.models import AuditEntry
from backendai.compute.models import ComputeSession
from backendai.compute.services.priorities import set_priority
from backendai.core.errors import Conflict, UserError
from tests.cast import Cast
from tests.factories import make_running_session, make_session

pytestmark = pytest.mark.django_db


def test_a_waiting_session_gets_another_priority_and_it_is_written_down(cast: Cast) -> None:
    session = make_session(cast.alice, name="waits")
    set_priority(session, cast.dana, 40, now=timezone.now())
    changed = ComputeSession.objects.get()
    assert (changed.priority, changed.version) == (40, session.version + 1)
    entry = AuditEntry.objects.get(action="session.set-priority")
    assert entry.details["changes"] == {"priority": [10, 40]}
    assert (entry.details["actor"], entry.details["owner"]) == ("dana@example.com", "alice@example.com")
    set_priority(changed, cast.dana, 40, now=timezone.now())
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
        set_priority(session, cast.dana, wanted, now=timezone.now())
    assert (refused.value.field, refused.value.code) == ("priority", code)
    assert ComputeSession.objects.get().priority == 10
    set_priority(session, cast.alice, 30, now=timezone.now())


def test_what_runs_has_no_use_for_another_priority(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    with pytest.raises(Conflict) as refused:
        set_priority(session, cast.alice, 20, now=timezone.now())
    assert refused.value.code == "not-pending"
    assert not AuditEntry.objects.filter(action="session.set-priority").exists()


def test_it_answers_over_rest(cast: Cast, client: Client) -> None:
    session = make_session(cast.alice)
    address = f"/api/v1/sessions/{session.pk}/priority/"
    client.force_login(cast.alice)
    answer = client.post(address, {"priority": 20}, content_type="application/json")
    assert (answer.status_code, answer.json()["priority"]) == (200, 20)
    assert client.post(address, {"priority": 200}, content_type="application/json").status_code == 400
    client.force_login(cast.bob)
    assert client.post(address, {"priority": 1}, content_type="application/json").status_code == 404
