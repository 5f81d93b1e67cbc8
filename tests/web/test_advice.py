"""What a person can do stands beside every reason that waiting alone does not mend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.reasons import REASONS
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.status import Status
from backendai.portal.web.session.reasons import advice
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_session

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@some(
    ("code", "never", "words"),
    [
        ("slot-limit", True, "Ask for no more than the limit"),
        ("slot-limit", False, "terminate one of yours, or request less"),
        ("too-many-sessions", True, "The limit is 0 sessions"),
        ("too-many-sessions", False, "terminate one of yours"),
        ("slot-not-offered", True, "Choose a resource group that has it"),
        ("dependency-failed", True, "Let the other session succeed first"),
        ("session-type-not-allowed", True, "the other type of session"),
        ("designated-agent-unknown", True, "Name agents of this resource group"),
        ("invalid-amount", True, "a multiple of the device share"),
        ("fragmented", False, "when whole devices become free"),
        ("image-not-on-agent", False, "pull this one to the agents"),
        ("wrong-group-rules", False, "contact an administrator or choose another resource group"),
        ("scheduler-error", True, "Give the error number to an administrator"),
        ("scheduler-error", False, "give the error number to an administrator"),
        ("beyond-this-pass", False, "The session is queued and will be considered"),
    ],
    4,
)
def test_it_says_what_helps_a_session_that_waits(
    cast: Cast, browse: Browse, code: str, *, never: bool, words: str
) -> None:
    session = make_session(cast.alice)
    note_waits([Waiting(session.pk, code, "A reason.", {"never": never})], now=timezone.now())
    page = text_of(browse(cast.alice), session)
    assert words in page
    assert ("Cannot start" in page) is never


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("dependency-failed", Status.CANCELLED, "See why the other session failed"),
        ("gave-up-scheduling", Status.CANCELLED, "with less or in another resource group"),
        ("pending-timeout", Status.CANCELLED, "with less or in another resource group"),
        ("registry-unreachable", Status.ERROR, "pull the image to the agents"),
        ("agent-lost", Status.ERROR, "it will run on another agent"),
        ("task-timeout", Status.TERMINATED, "with a longer batch timeout"),
        ("session-lifetime", Status.TERMINATED, "raise the maximum lifetime"),
    ],
)
def test_it_says_what_can_be_done_after_the_end(
    cast: Cast, browse: Browse, code: str, status: Status, words: str
) -> None:
    session = make_session(cast.alice)
    ComputeSession.objects.update(status=status, status_reason=code, ended_at=timezone.now())
    assert words in text_of(browse(cast.alice), session)


def test_it_gives_no_advice_where_waiting_is_enough(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    note_waits([Waiting(session.pk, "behind-in-queue", "Waits for its turn.")], now=timezone.now())
    answer = browse(cast.alice).get(reverse("web:session_panel", args=[session.pk]))
    assert (answer.context["change"], answer.context["help"]) == ("", "")


def text_of(client: Client, session: ComputeSession) -> str:
    page = client.get(reverse("web:session_panel", args=[session.pk])).content.decode()
    return page.replace("&#x27;", "'")


def test_every_reason_of_a_failure_has_advice() -> None:
    assert {code for code, reason in REASONS.items() if reason.fails} - advice.AFTERWARDS.keys() == set()
