"""Choosing where one is told of one's sessions: on the account page and over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry, NoticeChoice
from tests.api.callers import Caller
from tests.cast import Cast

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
PAGE, REST = "web:notice_choices", "/api/v1/me/notifications/"
USUAL = {"card": True, "bell": True, "email": False}


def test_what_is_chosen_on_the_page_is_what_rest_says(cast: Cast, browse: Browse, settings: Any) -> None:
    settings.EMAIL_URL = "smtp://mail.example.org"
    alice, client = Caller(cast.alice), browse(cast.alice)
    assert alice.get(REST).json() == dict.fromkeys(("started", "finished", "failed", "ended", "ending", "given"), USUAL)
    sent = {"started-bell": "on", "failed-card": "on", "failed-bell": "on", "failed-email": "on", "ended-card": "on"}
    page = client.post(reverse(PAGE), sent, follow=True)
    assert "Saved." in page.content.decode()
    assert alice.get(REST).json() == {
        "started": {"card": False, "bell": True, "email": False},
        "finished": {"card": False, "bell": False, "email": False},
        "failed": {"card": True, "bell": True, "email": True},
        "ended": {"card": True, "bell": False, "email": False},
        "ending": {"card": False, "bell": False, "email": False},
        "given": {"card": False, "bell": False, "email": False},
    }
    assert page.content.decode().count(" checked") == 5
    entry = AuditEntry.objects.get(action="user.choose-notices")
    assert entry.details["changes"]["ending"] == ["card, bell", "nowhere"]
    assert Caller(cast.bob).get(REST).json()["ending"] == USUAL


def test_rest_changes_only_what_is_named(cast: Cast) -> None:
    alice = Caller(cast.alice)
    answer = alice.patch(REST, {"ended": {"bell": False}})
    assert (answer.status_code, answer.json()["ended"]) == (200, USUAL | {"bell": False})
    assert alice.patch(REST, {}).json()["ended"] == USUAL | {"bell": False}
    assert NoticeChoice.objects.count() == 1
    assert alice.patch(REST, {"ended": {"sms": True}}).status_code == 400
    assert alice.patch(REST, {"launched": {"bell": False}}).status_code == 400


def test_without_a_mail_server_nobody_can_choose_mail(cast: Cast, browse: Browse, settings: Any) -> None:
    settings.EMAIL_URL = ""
    refused = Caller(cast.alice).patch(REST, {"failed": {"email": True, "card": False}})
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (400, "no-mail-server", "failed")
    assert not NoticeChoice.objects.exists()
    page = browse(cast.alice).get(reverse(PAGE)).content.decode()
    assert "This site sends no e-mail." in page and page.count(" disabled") == 6
