"""The bell and what is behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity import jobs
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.reasons import REASONS
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import Status
from backendai.portal.web.news.lines import headline, sentence
from tests.cast import Cast
from tests.factories import make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LIST, BELL = "web:notifications", "web:bell"


def start(user: User, subject: str = "python", **over: Any) -> BackgroundJob:
    return jobs.start_job("image.pull", subject, now=timezone.now(), owner_id=user.pk, **over)


def end(job: BackgroundJob, **over: Any) -> None:
    jobs.finish_job(job.pk, message="Two agents have it.", now=timezone.now(), **over)


def test_the_bell_marks_what_goes_on_and_what_ended_unseen_in_seven_queries(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client, others = browse(cast.alice), start(cast.bob)
    first, _ = start(cast.alice, "one"), start(cast.alice, "two")
    with django_assert_num_queries(9):  # 2 for who asks
        assert "2 under way" in markup(client.get(reverse(BELL)))
    end(first)
    end(others)
    assert "1 new notification" in markup(client.get(reverse(BELL)))
    client.post(reverse("web:notifications_seen"), **HTMX)
    assert "1 under way" in markup(client.get(reverse(BELL)))


def test_it_lists_progress_results_and_fixes_in_a_fixed_number_of_queries(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.alice)
    going = start(cast.alice, "<one>", total=4, unit="agents")
    jobs.report_progress(going.pk, None, "Pulling.", now=timezone.now(), done=1)
    parts = [{"name": "node-1", "ok": False, "message": "No space is left."}]
    end(start(cast.alice, "two"), failed=True, fix="Free some space.", result={"parts": parts})
    start(cast.bob, "of-bob")
    for headers in ({}, HTMX):
        with django_assert_num_queries(8):
            text = markup(client.get(reverse(LIST), **headers))
        assert "&lt;one&gt;" in text and "1 of 4 agents" in text and 'value="25"' in text
        assert "Free some space." in text and "node-1" in text and "No space is left." in text
        assert "of-bob" not in text
        assert ("<html" in text) is not bool(headers)


def test_one_cancels_and_clears_with_and_without_scripts(cast: Cast, browse: Browse) -> None:
    client, going, over = browse(cast.alice), start(cast.alice, "one"), start(cast.alice, "two")
    end(over)
    answer = client.post(reverse("web:job_cancel", args=[going.pk]), **HTMX)
    assert "being cancelled" in markup(answer)
    answer = client.post(reverse("web:job_cancel", args=[over.pk]), follow=True)
    assert "The job is over: done." in markup(answer)
    answer = client.post(reverse("web:notifications_clear"), follow=True)
    assert [line.about.pk for line in answer.context["lines"]] == [going.pk]
    jobs.stop_job(going.pk, message="Stopped.", now=timezone.now())
    assert "Nothing new" in markup(client.post(reverse("web:notifications_clear"), **HTMX))
    assert BackgroundJob.objects.filter(owner=cast.alice).count() == 2, "put away, not deleted"


def test_a_warning_about_a_session_that_has_ended_is_told_as_past(cast: Cast, browse: Browse) -> None:
    client, due_at = browse(cast.alice), timezone.now()
    session = make_running_session(cast.alice)
    rows = {"session": session, "owner": cast.alice, "due_at": due_at, "created_at": due_at}
    SessionNotice.objects.create(kind=NoticeKind.IDLE, message="Unused for 1 min.", **rows)
    SessionNotice.objects.create(kind=NoticeKind.ENDING, **rows)
    text = markup(client.get(reverse(LIST), **HTMX))
    assert ">Idle</span>" in text and "Unused for 1 min." in text and ">Ends soon</span>" in text
    type(session).objects.filter(pk=session.pk).update(status=Status.TERMINATED, ended_at=due_at)
    text = markup(client.get(reverse(LIST), **HTMX))
    assert "<span>Was idle</span>" in text and "<span>Was warned of its end</span>" in text
    assert ">Idle</span>" not in text and "Unused for" not in text and "Ends soon" not in text


def test_a_batch_session_that_failed_has_the_same_status_as_in_the_list(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice, session_type="batch", startup_command="false")
    SessionNotice.objects.create(
        session=session, owner=cast.alice, kind=NoticeKind.FAILED, message="The batch program ended with exit code 1."
    )
    ended = {"status": Status.TERMINATED, "result": "FAILED", "ended_at": timezone.now()}
    type(session).objects.filter(pk=session.pk).update(**ended)
    text = markup(browse(cast.alice).get(reverse(LIST), **HTMX))
    assert re.findall(r'<span class="status[^>]*>(\w+)<', text) == ["Failed"]


def test_an_end_by_an_administrator_is_told_as_such_and_once(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    terminate_session(session, cast.dana)
    for address in (LIST, "web:cards"):
        text = re.sub(r"<[^>]+>", "", markup(browse(cast.alice).get(reverse(address), **HTMX)))
        assert "Ended by an administrator: dana@example.com" in text and text.count("Ended by") == text.count(
            "Ended by an administrator"
        )
        assert "platform" not in text


@pytest.mark.parametrize(("resumes", "words"), [(0, "Started after its wait"), (1, "Resumed")])
def test_a_resumed_session_has_not_waited_since_its_launch(resumes: int, words: str) -> None:
    session = ComputeSession(status=Status.RUNNING, resumes=resumes)
    assert headline(SessionNotice(session=session, kind=NoticeKind.STARTED)) == words


def test_no_notification_says_the_words_of_its_headline_again(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    for kind in NoticeKind:
        rows = {"session": session, "owner": cast.alice, "kind": kind}
        SessionNotice.objects.update_or_create(rows, session=session, kind=kind)
    SessionNotice.objects.filter(kind__in=["idle", "ending"]).update(due_at=timezone.now())
    text = markup(browse(cast.alice).get(reverse(LIST), **HTMX))
    lines = re.findall(r"<div><span(?: class=\"job-status[^>]*)?>.*?</div>", text)
    assert len(lines) == len(NoticeKind)
    for line in lines:
        said = re.sub(r"<[^>]+>", "", line).split()
        assert said.count("ends") + said.count("Ends") < 2, said
    for code in REASONS.keys() - {"user-requested"}:  # of which nobody is notified
        row = SessionNotice(session=ComputeSession(status=Status.TERMINATED, status_reason=code))
        row.kind = NoticeKind.FAILED if REASONS[code].fails else NoticeKind.ENDED
        assert not sentence(row).startswith(headline(row).split()[0]), code
