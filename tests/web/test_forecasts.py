"""Where people read when a session probably starts, and how such forecasts came true."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.models import StartForecast
from backendai.domain.forecasts.scoring import score_forecasts
from backendai.scheduler.forecasts.ranges import METHOD
from tests.api.callers import SESSIONS, Caller
from tests.cast import PASSWORD
from tests.factories import make_session

pytestmark = pytest.mark.django_db


def forecast(session: Any, **over: Any) -> StartForecast:
    now = timezone.now()
    times = {
        name: now + timedelta(hours=hours)
        for name, hours in (("early", 1), ("expected", 2), ("late", 3), ("latest", 4))
    }
    first = {f"first_{name}": times[name] for name in ("early", "expected", "late")}
    values = {"updated_at": now, "method": METHOD, "first_at": now, **times, **first} | over
    return StartForecast.objects.create(session=session, resource_group=session.resource_group, **values)


def page_of(client: Client, user: Any, address: str) -> str:
    client.force_login(user)
    return client.get(address).content.decode()


def test_a_waiting_session_shows_its_range_on_its_page_and_in_the_list(cast: Any, client: Client) -> None:
    session = make_session(cast.alice)
    session.queue_position = 1
    session.save(update_fields=["queue_position"])
    forecast(session)
    shown = page_of(client, cast.alice, reverse("web:session", args=[session.pk]))
    assert "It probably starts between" in shown
    assert "This is a rough guess" in shown
    assert "probably starts" in page_of(client, cast.alice, reverse("web:sessions"))


def test_where_nothing_can_be_said_the_page_says_why(cast: Any, client: Client) -> None:
    session = make_session(cast.alice)
    forecast(session, expected=None, early=None, late=None, latest=None, code="endless", endless=3)
    shown = page_of(client, cast.alice, reverse("web:session", args=[session.pk]))
    assert "3 sessions in this resource group have no known end" in " ".join(shown.split())


def test_rest_tells_the_forecast_with_the_explanation(cast: Any) -> None:
    session = make_session(cast.alice)
    path = f"{SESSIONS}{session.pk}/explain/"
    assert Caller(cast.alice).get(path).json()["forecast"] is None
    told = forecast(session)
    body = Caller(cast.alice).get(path).json()["forecast"]
    assert (body["code"], body["is_reliable"]) == ("", False)
    assert body["early"] < body["late"] < body["latest"]
    assert body["expected"].startswith(f"{told.expected:%Y-%m-%dT%H:%M:%S}")


def test_the_queue_shows_expected_starts_and_how_forecasts_came_true(cast: Any, client: Client) -> None:
    waiting, past = make_session(cast.alice), make_session(cast.alice, name="came-late")
    forecast(waiting)
    past.status, past.scheduled_at = Status.TERMINATED, timezone.now() + timedelta(hours=5)
    past.save(update_fields=["status", "scheduled_at"])
    forecast(past)
    score_forecasts(timezone.now())
    shown = " ".join(page_of(client, cast.dana, reverse("manage:queue")).split())
    assert "Expected start" in shown
    assert "0%" in shown
    assert "2.49" in shown  # of the wait that was expected
    assert "came-late" in shown
    assert "not yet reliable" in shown
    elsewhere = create_person("eve@example.com", password=PASSWORD, project=cast.elsewhere, role=User.Role.ADMIN)
    assert "came-late" not in page_of(client, elsewhere, reverse("manage:queue"))
