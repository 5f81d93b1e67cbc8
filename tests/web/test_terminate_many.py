"""Choosing sessions in the list and ending them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from tests.cast import Cast
from tests.factories import make_running_session, make_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
ADDRESS = "/sessions/terminate/"


def said(answer: Any) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def test_only_what_lives_can_be_chosen(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    client, box = browse(cast.alice), f'name="session" value="{session.pk}"'
    row = reverse("web:session_row", args=[session.pk])
    assert box in markup(client.get("/"))
    assert box in markup(client.get(row))
    terminate_session(session, cast.alice)
    for address in ("/?view=finished", row, f"{row}?view=finished"):
        page = markup(client.get(address))
        assert session.name in page
        assert box not in page


def test_it_asks_first_and_says_what_is_lost_and_what_depends_on_them(cast: Cast, browse: Browse) -> None:
    batch = {"session_type": "batch", "startup_command": "true"}
    first = make_session(cast.alice, name="first", **batch)
    make_session(cast.alice, name="after-it", depends_on=("first",), **batch)
    running, bobs = make_running_session(cast.alice, name="runs"), make_session(cast.bob, name="bobs")
    client = browse(cast.alice)
    form = {"session": [str(first.pk), str(running.pk), str(bobs.pk), "nonsense"], "back": "/?view=&size=10"}
    page = markup(client.post(ADDRESS, form))
    assert "Terminate 2 sessions?" in page
    assert "all files outside mounted folders" in page
    assert "<bdi>after-it</bdi>" in page
    assert "bobs" not in page
    assert 'name="force"' in page
    assert set(ComputeSession.objects.values_list("status", flat=True)) == {"PENDING", "RUNNING"}
    answer = client.post(ADDRESS, form | {"confirmed": "1"})
    assert answer["Location"] == "/?view=&size=10"
    assert said(answer) == [
        "1 session is being terminated.",
        "1 session was cancelled before it ran.",
        "Session not found.",
    ]
    assert dict(ComputeSession.objects.values_list("name", "status"))["bobs"] == "PENDING"


def test_it_says_which_ones_could_not_be_ended(cast: Cast, browse: Browse) -> None:
    gone, waits = make_session(cast.alice, name="gone"), make_session(cast.alice, name="waits")
    terminate_session(gone, cast.alice)
    form = {"session": [str(gone.pk), str(waits.pk)], "confirmed": "1", "back": "//evil.example/"}
    answer = browse(cast.alice).post(ADDRESS, form)
    assert answer["Location"] == "/"
    assert "gone: It has already ended (cancelled)." in said(answer)


def test_nothing_chosen_ends_nothing(cast: Cast, browse: Browse) -> None:
    answer = browse(cast.alice).post(ADDRESS, {"confirmed": "1"})
    assert said(answer) == ["Select at least one session."]
    gone = make_session(cast.alice)
    terminate_session(gone, cast.alice)
    assert "No session to terminate" in markup(browse(cast.alice).post(ADDRESS, {"session": str(gone.pk)}))
