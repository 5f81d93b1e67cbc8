"""News of sessions by e-mail."""

from __future__ import annotations

import smtplib
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.utils import timezone

from backendai.domain.activity.notices import choose
from backendai.domain.compute.models import SessionNotice
from backendai.domain.compute.services.life.ending import end_sessions
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase
from backendai.portal.loops.mail_texts import mail_of
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.example.org", "https://lab.example.org"


def fail(owner: Any, name: str) -> None:
    session = make_running_session(owner, make_agent(), name=name)
    end_sessions([session.pk], StatusCause(Phase.RUN, "agent-lost", "Its node has not answered."), now=timezone.now())


def test_it_is_sent_once_to_those_who_asked_for_this_kind(cast: Cast) -> None:
    choose(cast.alice, {"failed": {"email": True}})
    choose(cast.bob, {"ended": {"email": True}})
    fail(cast.alice, "of-alice")
    fail(cast.bob, "of-bob")
    now = timezone.now()
    assert SESSIONS.has_mails(now)
    assert [SESSIONS.send_mails(lambda: now, mail_of), SESSIONS.send_mails(lambda: now, mail_of)] == [1, 0]
    assert not SESSIONS.has_mails(now)
    [sent] = mail.outbox
    assert (sent.to, sent.subject) == (["alice@example.com"], "of-alice has failed")
    session = SessionNotice.objects.get(kind="failed", owner=cast.alice).session
    assert f"https://lab.example.org/sessions/{session.pk}/" in sent.body
    assert "Its node has not answered." in sent.body


def test_an_address_that_is_refused_holds_up_no_other(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    for person in (cast.alice, cast.bob):
        choose(person, {"failed": {"email": True}})
    fail(cast.alice, "of-alice")
    fail(cast.bob, "of-bob")
    send, now = EmailMessage.send, timezone.now()

    def refuse_alice(message: EmailMessage) -> int:
        if message.to == ["alice@example.com"]:
            raise smtplib.SMTPRecipientsRefused({"alice@example.com": (550, b"unknown")})
        return send(message)

    monkeypatch.setattr(EmailMessage, "send", refuse_alice)
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        SESSIONS.send_mails(lambda: now, mail_of)
    assert [sent.to for sent in mail.outbox] == [["bob@example.com"]]
    assert SESSIONS.has_mails(now), "hers is tried again"


def test_what_the_mail_server_refuses_is_tried_again_for_an_hour(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(cast.alice, {"failed": {"email": True}})
    fail(cast.alice, "unlucky")
    now = timezone.now()

    def refuse(_: EmailMessage) -> None:
        raise smtplib.SMTPServerDisconnected("away")

    with monkeypatch.context() as away:
        away.setattr(EmailMessage, "send", refuse)
        with pytest.raises(smtplib.SMTPServerDisconnected):
            SESSIONS.send_mails(lambda: now, mail_of)
    assert SESSIONS.has_mails(now)
    assert not SESSIONS.has_mails(now + timedelta(minutes=61))
    assert SESSIONS.send_mails(lambda: now, mail_of) == 1


def test_nothing_is_looked_for_where_the_site_sends_no_mail(
    cast: Cast, settings: Any, django_assert_num_queries: Any
) -> None:
    choose(cast.alice, {"failed": {"email": True}})
    fail(cast.alice, "quiet")
    settings.EMAIL_URL = ""
    with django_assert_num_queries(0):
        assert not SESSIONS.has_mails(timezone.now())


def test_who_may_not_sign_in_any_more_gets_none(cast: Cast) -> None:
    choose(cast.alice, {"failed": {"email": True}})
    fail(cast.alice, "late")
    cast.alice.is_active = False
    cast.alice.save()
    assert SESSIONS.send_mails(timezone.now, mail_of) == 0


def test_it_is_in_the_language_of_whoever_reads_it(cast: Cast) -> None:
    for person, language in ((cast.alice, "ko"), (cast.bob, "")):
        choose(person, {"failed": {"email": True}})
        person.language = language
        person.save()
        fail(person, f"of-{person.email[:3]}")
    assert SESSIONS.send_mails(timezone.now, mail_of) == 2
    korean, english = sorted(mail.outbox, key=lambda sent: sent.to)
    assert korean.subject == "of-ali 세션이 실패했습니다"
    assert "Your session" not in korean.body
    assert "https://lab.example.org/account/notifications/" in korean.body
    assert english.subject == "of-bob has failed"
    assert english.body.startswith("Your session of-bob has failed.\n\nIts node has not answered.\n\nhttps://lab")
