"""The notification that a session will probably start soon: once, and only of a reliable forecast."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.activity.notices import NoticeKind, choices_of, choose
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.notices.owners import tell_of_starts
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.foreseeing import forecast_group
from backendai.domain.forecasts.models import ForecastScore
from backendai.portal.loops.mail_texts import mail_of
from tests.factories import make_agent, make_group, make_running_session, make_session
from tests.pages import markup

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
MINUTE = timedelta(minutes=1)


def told() -> list[Any]:
    return list(SessionNotice.objects.filter(kind=NoticeKind.STARTING).values_list("session", flat=True))


@pytest.fixture
def waiting(cast: Any) -> ComputeSession:
    """A session of Alice that has waited for an hour behind one that ends in twenty minutes."""
    running = make_running_session(cast.bob, make_agent("node-1", cpu=1))
    now = timezone.now()
    ComputeSession.objects.filter(pk=running.pk).update(ends_at=now + 20 * MINUTE)
    session = make_session(cast.alice)
    ComputeSession.objects.filter(pk=session.pk).update(created_at=now - 60 * MINUTE)
    ForecastScore.objects.create(
        resource_group=session.resource_group, number=20, inside=0.8, error_seconds=60, bias=1, early=0.9, late=1.1,
        latest=1.2, is_reliable=True, updated_at=now,
    )  # fmt: skip
    return session


def test_the_owner_is_told_once_when_the_start_is_ten_minutes_away(waiting: ComputeSession) -> None:
    now = timezone.now()
    forecast_group(make_group(), now)
    assert told() == []
    for minutes in (11, 12, 15):
        forecast_group(make_group(), now + minutes * MINUTE)
    assert told() == [waiting.pk]


def test_a_rough_guess_a_short_wait_and_a_start_that_is_there_are_not_told(waiting: ComputeSession, cast: Any) -> None:
    now = timezone.now() + 15 * MINUTE
    ForecastScore.objects.update(is_reliable=False)
    forecast_group(make_group(), now)
    assert told() == []
    ComputeSession.objects.filter(pk=waiting.pk).update(created_at=now - 5 * MINUTE)
    assert tell_of_starts([waiting.pk], now=now) == 0
    ComputeSession.objects.filter(pk=waiting.pk).update(created_at=now - 60 * MINUTE, starts_at=now + MINUTE)
    assert tell_of_starts([waiting.pk], now=now) == 0, "it has waited for its own start time"
    ComputeSession.objects.filter(pk=waiting.pk).update(starts_at=None, status=Status.SCHEDULED)
    assert tell_of_starts([waiting.pk], now=now) == 0
    ComputeSession.objects.filter(pk=waiting.pk).update(status=Status.PENDING)
    assert tell_of_starts([waiting.pk], now=now) == 1
    assert tell_of_starts([waiting.pk], now=now) == 0


def test_it_is_shown_as_the_owner_chose_and_speaks_of_the_past_after_the_start(
    waiting: ComputeSession, cast: Any, client: Client
) -> None:
    tell_of_starts([waiting.pk], now=timezone.now())
    client.force_login(cast.alice)
    shown = markup(client.get(reverse("web:notifications")))
    assert "Probably starts within 10 minutes" in shown
    subject, text = mail_of(SessionNotice.objects.get(kind=NoticeKind.STARTING))
    assert subject == f"{waiting.name} probably starts within 10 minutes" and subject in text.replace("\n", " ")
    ComputeSession.objects.filter(pk=waiting.pk).update(status=Status.RUNNING, started_at=timezone.now())
    assert "Was to start soon" in markup(client.get(reverse("web:notifications")))
    choose(cast.alice, {NoticeKind.STARTED: {"bell": False}})
    assert not choices_of(cast.alice)[NoticeKind.STARTING]["bell"]
    assert "Was to start soon" not in markup(client.get(reverse("web:notifications")))
