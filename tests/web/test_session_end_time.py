"""The form that moves the end of a running session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_running_session, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HOUR = timedelta(hours=1)


def limited(cast: Cast, hours: int) -> ComputeSession:
    cast.alice.policy = ResourcePolicy.objects.create(name="day", max_session_lifetime=hours * HOUR)
    cast.alice.save()
    return make_running_session(cast.alice, session_type="batch", startup_command="sleep 1000", batch_timeout=2 * HOUR)


def form_of(session: ComputeSession) -> str:
    return reverse("web:session_end_time", args=[session.pk])


def text_of(client: Client, address: str, **headers: str) -> str:
    return " ".join(client.get(address, **headers).content.decode().split())


def test_the_page_of_a_running_session_leads_to_the_form(cast: Cast, browse: Browse) -> None:
    session, free, pending = limited(cast, 4), make_running_session(cast.bob), make_session(cast.alice)
    client = browse(cast.dana)
    for one, words in ((session, ["head-end-time", "Move the end"]), (free, ["Set an end"])):
        page = text_of(client, reverse("web:session", args=[one.pk]))
        assert f'href="{form_of(one)}"' in page
        assert all(word in page for word in words)
    assert form_of(pending) not in text_of(client, reverse("web:session", args=[pending.pk]))


def test_only_allowed_ends_are_offered(cast: Cast, browse: Browse) -> None:
    session = limited(cast, 4)
    page = text_of(browse(cast.alice), form_of(session))
    assert 'value="1h"' in page and 'value="latest"' in page and "Latest allowed end:" in page
    assert 'value="4h"' not in page and 'value="no-limit"' not in page
    page = text_of(browse(cast.dana), form_of(session), **HTMX)
    assert "<!DOCTYPE" not in page
    assert 'value="1d"' in page and 'value="no-limit"' in page and "Latest allowed end:" not in page


def test_the_end_moves_with_and_without_scripts(cast: Cast, browse: Browse) -> None:
    session, client = limited(cast, 4), browse(cast.alice)
    before, address = session.ends_at, form_of(session)
    assert client.post(address, {"end": "1h"}, **HTMX).status_code == 204
    session.refresh_from_db()
    assert session.ends_at == before + HOUR
    page = client.post(address, {"end": "latest"}, follow=True).content.decode()
    session.refresh_from_db()
    assert session.ends_at == session.started_at + 4 * HOUR
    assert "The end is moved." in page and "Moved end" in page
    browse(cast.dana).post(address, {"end": "no-limit"})
    session.refresh_from_db()
    assert session.ends_at is None
    client.post(address, {"end": "remaining", "remaining": "30m"})
    session.refresh_from_db()
    assert session.ends_at < session.started_at + HOUR


@some(
    ("typed", "words"),
    [
        ({"end": "remaining"}, "Enter the remaining time, such as"),
        ({"end": "remaining", "remaining": "soon"}, "Write a number with its unit"),
        ({"end": "remaining", "remaining": "10s"}, "at least 60 seconds and at most 3650 days"),
        ({"end": "remaining", "remaining": "5h"}, "The policies of the owner allow an end at"),
        ({"end": "1h", "remaining": "30m"}, "Choose this time above, or clear the box."),
        ({"end": "1d"}, "Select a valid choice"),
        ({}, "This field is required"),
    ],
    2,
)
def test_a_mistake_is_shown_at_its_field(cast: Cast, browse: Browse, typed: dict[str, str], words: str) -> None:
    session = limited(cast, 4)
    page = browse(cast.alice).post(form_of(session), typed, **HTMX).content.decode()
    assert words in page and 'aria-invalid="true"' in page
    session.refresh_from_db()
    assert not session.is_end_moved


def test_a_session_that_has_ended_says_so(cast: Cast, browse: Browse) -> None:
    session, client = limited(cast, 4), browse(cast.alice)
    terminate_session(session, cast.alice)
    assert "The session is not running" in text_of(client, form_of(session))
    assert b"The session is not running" in client.post(form_of(session), {"end": "1h"}).content
