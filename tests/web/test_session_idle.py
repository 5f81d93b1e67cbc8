"""What people see of idle checkers: on a session's panel, in the list, in news, before a launch; and more time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.idle.checkers import Places, write_checker
from backendai.domain.cluster.models import Agent, IdleChecker
from backendai.domain.compute.models import ComputeSession, IdleWarning
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.domain.usage.models import UsageSample
from backendai.portal.loops import idle
from tests.cast import Cast
from tests.controller.clocks import passes_went_on_until
from tests.factories import make_agent, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HOSTILE = "<script>alert(1)</script>"


def checker(name: str = "quiet", **over: Any) -> IdleChecker:
    values = {"name": name, "limit": timedelta(hours=1), "warning": timedelta(minutes=10)} | over
    return write_checker(None, IdleChecker(), values, Places(is_site_wide=True))


def unused_for(*sessions: ComputeSession, **duration: float) -> None:
    """Let the sessions have run, and nobody have used them, for so long; then look for idle sessions."""
    now, ids = timezone.now(), [session.pk for session in sessions]
    ComputeSession.objects.filter(pk__in=ids).update(started_at=now - timedelta(**duration))
    note_traffic(dict.fromkeys(ids, now - timedelta(**duration)))
    passes_went_on_until(now)
    idle.run_idle(now)


def text_of(client: Client, address: str, **headers: str) -> str:
    return markup(client.get(address, **headers))


def page_of(session: ComputeSession) -> str:
    return reverse("web:session", args=[session.pk])


def test_a_used_session_shows_what_would_end_it_and_when(cast: Cast, browse: Browse) -> None:
    checker(description=HOSTILE)
    session = make_running_session(cast.alice)
    unused_for(session, minutes=5)
    page = text_of(browse(cast.alice), page_of(session))
    checker("long", kind="session-lifetime")
    assert "Max session lifetime" in text_of(browse(cast.alice), page_of(session))
    assert "Network idle timeout" in page and ">quiet<" in page and HOSTILE not in page
    assert "if nobody uses it." in page and "No idle checker applies" not in page
    assert "A program that runs unattended does not count. The owner is warned 10m before the end." in page
    assert "idle-notice" not in page and "longer-facts" not in page


def test_a_warned_session_says_so_and_can_be_kept_running(cast: Cast, browse: Browse) -> None:
    rule, client = checker(), browse(cast.alice)
    session = make_running_session(cast.alice)
    unused_for(session, minutes=55)
    page = text_of(client, page_of(session))
    assert f'id="idle-notice-{rule.pk}"' in page
    notice = page.partition('id="idle-notice-')[2].partition("Keep the home folder")
    assert f'href="/sessions/{session.pk}/keep-home/"' in notice[0], "its files can be kept before it ends"
    assert "Unused since <time" in page and "; idle checker quiet ends sessions after 1 h without use." in page
    assert "for 55 min" not in page, "a length would be wrong a minute later"
    assert "Keep session running 1h longer" in page and "3 extensions are left" in page
    assert "idle, ends <time" in text_of(client, reverse("web:sessions"))
    assert "idle, ends <time" in text_of(client, reverse("web:session_row", args=[session.pk]), **HTMX)
    longer = reverse("web:session_longer", args=[session.pk, rule.pk])
    answer = client.post(longer, follow=True)
    page = markup(answer)
    assert "It may run until" in page and "Extended until at least" in page and "idle-notice" not in page
    assert IdleWarning.objects.get().extensions == 1
    assert "idle, ends" not in text_of(client, reverse("web:sessions"))
    again = client.post(longer, follow=True)
    assert "This idle checker has no active warning." in markup(again)
    assert browse(cast.charlie).post(longer).status_code == 404


@pytest.mark.parametrize(
    ("unused", "warned", "tone"),
    [
        (45, 0, ""),
        (59, 0, ' class="tone-text-wait"'),
        (59, 7, ' class="tone-text-wait"'),
        (59, 8, ' class="tone-text-bad"'),
    ],
)
def test_the_end_is_yellow_from_the_warning_on_and_red_in_its_last_quarter(
    cast: Cast, browse: Browse, unused: int, warned: int, tone: str
) -> None:
    checker()
    session = make_running_session(cast.alice)
    unused_for(session, minutes=unused)
    told = timezone.now() - timedelta(minutes=warned)
    IdleWarning.objects.update(warned_at=told, due_at=told + timedelta(minutes=10))
    assert f"<div{tone}>Ends <time" in text_of(browse(cast.alice), page_of(session))


@pytest.mark.parametrize(("used", "tone"), [(11, ""), (9, " tone-text-wait"), (1, " tone-text-bad")])
def test_a_figure_is_yellow_near_its_threshold_and_red_below_it(
    cast: Cast, browse: Browse, used: int, tone: str
) -> None:
    checker("lazy", kind="utilization", limit=timedelta(minutes=20), thresholds={"cpu": 5})
    session = make_running_session(cast.alice, resources={"cpu": 1})
    kernel, now = session.kernels.get(), timezone.now()
    for minutes in range(30):
        at = now - timedelta(minutes=minutes)
        UsageSample.objects.create(kernel=kernel, at=at, seconds=60, cpu=used / 100)
    unused_for(session, minutes=30)
    page = text_of(browse(cast.alice), page_of(session))
    assert f'<strong class="number{tone}">{used} %</strong> <span class="sub">idle below 5 %</span>' in page


def test_over_the_list_it_is_kept_running_without_leaving_the_list(cast: Cast, browse: Browse) -> None:
    rule, client = checker(max_extensions=1), browse(cast.alice)
    session = make_running_session(cast.alice)
    unused_for(session, minutes=55)
    longer = reverse("web:session_longer", args=[session.pk, rule.pk]) + "?in=drawer"
    part = markup(client.post(longer, **HTMX))
    assert "<!DOCTYPE" not in part and "Extended until at least" in part and '<h2 class="h1"' in part
    IdleWarning.objects.update(extended_until=timezone.now())
    unused_for(session, minutes=55)
    page = text_of(client, page_of(session))
    assert "No more extensions." in page and "longer-facts" not in page


def test_what_nobody_can_know_is_said(cast: Cast, browse: Browse) -> None:
    checker()
    checker("lazy", kind="utilization", thresholds={"cpu": 5}, grace=timedelta(hours=5))
    session = make_running_session(cast.alice)
    page = text_of(browse(cast.alice), page_of(session))
    assert "Usage is counted from now on." in page and "This check has not started yet." in page
    assert "idle below 5 %" in page and 'title="CPU – / 5 %"' in page
    write_checker(None, IdleChecker.objects.get(name="lazy"), {"grace": timedelta(0)})
    unused_for(session, hours=2)
    assert "Too little was measured" in text_of(browse(cast.alice), page_of(session))
    Agent.objects.update(status=Agent.Status.LOST)
    assert "The agent does not answer, so activity is not known" in text_of(browse(cast.alice), page_of(session))


def test_a_session_that_waits_says_what_will_hold(cast: Cast, browse: Browse) -> None:
    checker()
    page = text_of(browse(cast.alice), page_of(make_session(cast.alice)))
    assert "Ends after 1h without traffic. The owner is warned 10m before." in page


def test_news_of_idleness_lead_to_more_time(cast: Cast, browse: Browse) -> None:
    checker()
    session = make_running_session(cast.alice)
    unused_for(session, minutes=55)
    for name in ("web:cards", "web:notifications"):
        page = text_of(browse(cast.alice), reverse(name), **HTMX)
        assert "ends at <time" in page and "Unused since <time" in page
    client = browse(cast.alice)
    row = text_of(client, reverse("web:session_row", args=[session.pk]), **HTMX)
    assert f'<form method="post" action="{reverse("web:keep_many")}"' in row and f'id="keep-{session.pk}"' in row
    page = text_of(client, reverse("web:cards"), **HTMX)
    assert f'<form method="post" action="{reverse("web:keep_many")}"' in page and "Keep session running" in page
    answer = client.post(reverse("web:keep_many"), {"session": [session.pk]}, **HTMX)
    assert "1 session keeps running." in markup(answer) and answer["HX-Trigger"] == "look-again-at-all"
    assert IdleWarning.objects.get().extensions == 1
    assert "Keep session running" not in text_of(client, reverse("web:cards"), **HTMX)


def test_all_warned_sessions_are_kept_running_by_one_click(
    cast: Cast, browse: Browse, django_assert_max_num_queries: Callable[..., object]
) -> None:
    checker(max_extensions=1)
    client, agent = browse(cast.alice), make_agent(cpu=64)
    many = [make_running_session(cast.alice, agent, name=f"idle-{number}") for number in range(4)]
    foreign = make_running_session(cast.charlie, agent, name="foreign")
    unused_for(*many, foreign, minutes=55)
    IdleWarning.objects.filter(session=many[3]).update(extensions=1)
    assert "Keep all running" in text_of(client, reverse("web:notifications"))
    chosen = {"session": [one.pk for one in (*many, foreign)], "back": "/?type=interactive"}
    with django_assert_max_num_queries(24):
        answer = client.post(reverse("web:keep_many"), chosen)
    assert answer["Location"] == "/?type=interactive"
    page = text_of(client, reverse("web:sessions"))
    assert "3 sessions keep running." in page and "idle-3: no more extensions." in page
    warned = IdleWarning.objects.filter(warned_at__isnull=False).values_list("session__name", flat=True)
    assert sorted(warned) == ["foreign", "idle-3"]
    assert AuditEntry.objects.filter(action="session.extend-idle").count() == 3
    assert "Select at least one session." in text_of(client, client.post(reverse("web:keep_many"))["Location"])


def test_the_panel_asks_the_database_as_often_for_many_checkers(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    client, session = browse(cast.alice), make_running_session(cast.alice)
    checker()
    unused_for(session, minutes=55)
    with django_assert_num_queries(20):
        client.get(page_of(session))
    for number in range(4):
        checker(f"more-{number}")
    with django_assert_num_queries(20):
        client.get(page_of(session))
