"""A batch session starts after others that succeeded, that failed, or that ended no matter how."""

from __future__ import annotations

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import cancel_dependents
from backendai.domain.planning.queue import dependencies_of
from backendai.scheduler.gates import unmet
from tests.cast import Cast
from tests.factories import make_session
from tests.pipelines.world import end

pytestmark = pytest.mark.django_db
BATCH = {"session_type": "batch", "startup_command": "true"}


def after(cast: Cast, first: ComputeSession, when: str) -> ComputeSession:
    return make_session(cast.alice, **BATCH, depends_on=[str(first.pk)], depends_when=when)


@pytest.mark.parametrize(
    ("when", "verdict", "starts"),
    [
        ("success", "task-finished", True),
        ("success", "task-failed", False),
        ("", "task-failed", False),
        ("failure", "task-failed", True),
        ("failure", "task-finished", False),
        ("any", "task-failed", True),
        ("any", "task-finished", True),
    ],
)
def test_it_starts_or_is_cancelled_by_how_the_other_ended(cast: Cast, when: str, verdict: str, starts: bool) -> None:
    first = make_session(cast.alice, **BATCH)
    second = after(cast, first, when)
    assert dependencies_of([second.pk])[second.pk][0].state == "live"
    now = timezone.now()
    end([first], lambda _: verdict, now)
    assert dependencies_of([second.pk])[second.pk][0].state == ("succeeded" if starts else "failed")
    cancel_dependents([first.pk], now=now)
    second.refresh_from_db()
    assert second.status == ("PENDING" if starts else "CANCELLED"), second.reason_text


def test_what_can_no_longer_happen_is_refused(cast: Cast) -> None:
    first = make_session(cast.alice, **BATCH)
    end([first], lambda _: "task-finished", timezone.now())
    with pytest.raises(UserError, match="has succeeded already"):
        after(cast, first, "failure")
    with pytest.raises(UserError, match="is not known here") as caught:
        after(cast, first, "sometimes")
    assert caught.value.field == "depends_when"
    assert after(cast, first, "any").depends_when == "any"


def test_the_reason_to_wait_names_the_condition(cast: Cast) -> None:
    first = make_session(cast.alice, **BATCH, name="first")
    for when, said in (("failure", "to end without success"), ("any", "to end"), ("success", "to succeed")):
        reason = unmet(dependencies_of([after(cast, first, when).pk]).popitem()[1])
        assert reason is not None and reason.message == f"Waits for session first {said}."
