"""The cards at the bottom right, and the same news under the bell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import NoticeChoice
from backendai.domain.compute.models import ComputeSession, SessionNotice
from backendai.domain.compute.services.life.ending import end_sessions, terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.status.moves import StatusCause
from backendai.domain.compute.status import Phase
from backendai.portal.loops.group_pass import schedule
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session, report_of
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
CARDS, LIST, BELL = "web:cards", "web:notifications", "web:bell"


def cards(client: Client) -> list[Any]:
    return [card for pile in client.get(reverse(CARDS)).context["piles"] for card in pile.cards]


def names(client: Client) -> list[str]:
    return [card.session.name for card in cards(client)]


def fail(session: ComputeSession, code: str = "failed-to-start", message: str = "The <b>disk</b> is full.") -> None:
    end_sessions([session.pk], StatusCause(Phase.START, code, message), now=timezone.now())


def finish(session: ComputeSession) -> None:
    kernel = session.kernels.select_related("agent").get()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))


def test_a_session_launched_over_rest_has_a_card_with_its_status_and_what_can_be_done(
    cast: Cast, browse: Browse
) -> None:
    client = browse(cast.alice)
    assert client.get(reverse(CARDS)).content.strip() == b""
    make_agent()
    make_image()
    body = {"name": "from-a-script", "image": "python", "resources": {"cpu": 1, "mem": "512m"}}
    pk = Caller(cast.alice).post(SESSIONS, body).json()["id"]
    page = client.get(reverse(CARDS)).content.decode()
    address = reverse("web:session", args=[pk])
    assert f'href="{address}"' in page and ">Pending<" in page
    assert f'href="{reverse("web:terminate", args=[pk])}"' in page
    assert f'href="{address}#log"' in page
    assert "Apps: only while it runs" in page and f'href="{address}#terminal"' not in page
    assert names(browse(cast.bob)) == []
    assert names(browse(cast.dana)) == [], "an administrator has cards of their own sessions only"


def test_a_start_that_lies_ahead_is_told_by_the_readers_clock(cast: Cast, browse: Browse) -> None:
    ahead = datetime(2999, 1, 31, 8, 30, tzinfo=UTC)
    session = make_session(cast.alice, session_type="batch", startup_command="true", starts_at=ahead)
    schedule(session.resource_group, timezone.now())
    page = browse(cast.alice).get(reverse(CARDS)).content.decode()
    assert "Starts at <time" in page and "2999-01-31T08:30:00" in page


def test_a_running_one_has_all_four_buttons_and_goes_after_a_while(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    session = make_running_session(cast.alice)
    page, address = client.get(reverse(CARDS)).content.decode(), reverse("web:session", args=[session.pk])
    assert ">Running<" in page and f'href="{address}#terminal"' in page and "only while it runs" not in page
    on_its_page = client.get(reverse(CARDS), **HTMX, HTTP_HX_CURRENT_URL=f"http://testserver{address}?a=b#log")
    assert on_its_page.content.strip() == b"", "its own page shows all of that"
    opening = "http://testserver" + reverse("web:opening", args=["key", "jupyterlab"])
    assert client.get(reverse(CARDS), **HTMX, HTTP_HX_CURRENT_URL=opening).content == b"", "it opens the app by itself"
    ComputeSession.objects.update(started_at=timezone.now() - timedelta(minutes=3))
    assert names(client) == []


def test_without_apps_it_says_why_and_leads_to_none(cast: Cast, browse: Browse) -> None:
    client, agent = browse(cast.alice), make_agent()
    bare = make_running_session(cast.alice, agent)
    served = make_running_session(cast.alice, agent, preopen_ports=[8080])
    page = client.get(reverse(CARDS)).content.decode()
    assert 'title="Apps: The image has no apps, and no port was opened."' in page
    leads = [f'href="{reverse("web:app_launcher", args=[session.pk])}"' for session in (bare, served)]
    assert [page.count(one) for one in leads] == [0, 1]
    bell = client.get(reverse(LIST)).content.decode()
    assert [bell.count(one) for one in leads] == [0, 1]


def test_it_closes_itself_when_all_went_well_and_stays_when_not(cast: Cast, browse: Browse) -> None:
    client, agent = browse(cast.alice), make_agent()
    well, badly = (
        make_running_session(cast.alice, agent, name="well"),
        make_running_session(cast.alice, agent, name="badly"),
    )
    terminate_session(well, cast.alice)
    assert b"data-over" not in client.get(reverse(CARDS)).content, "it is still on its way out"
    fail(badly)
    for session in (well, badly):
        finish(session)
    shown = {card.session.name: card for card in cards(client)}
    assert (shown["well"].closes_itself, shown["badly"].closes_itself) == (True, False)
    page = client.get(reverse(CARDS)).content.decode()
    assert "The &lt;b&gt;disk&lt;/b&gt; is full." in page
    assert f"{reverse('web:launch')}?like={badly.pk}" in page
    ComputeSession.objects.update(ended_at=timezone.now() - timedelta(minutes=1))
    assert names(client) == ["badly"]


def test_a_closed_card_comes_again_only_with_further_news(cast: Cast, browse: Browse) -> None:
    client, session = browse(cast.alice), make_running_session(cast.alice, name="mine")
    close = reverse("web:card_close", args=[session.pk])
    assert browse(cast.bob).post(close, **HTMX).status_code == 200
    assert names(client) == ["mine"], "nobody closes the cards of others"
    assert client.post(close, **HTMX).content.strip() == b""
    assert names(client) == []
    fail(session, "agent-lost", "Its node has not answered.")
    assert names(client) == ["mine"]
    assert client.post(close)["Location"] == reverse(LIST)
    assert names(client) == []


def test_three_are_shown_the_newest_first_and_the_others_counted(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.alice)
    for number in range(5):
        make_session(cast.alice, name=f"session-no-{number}")
        with django_assert_num_queries(5):  # 2 for who asks
            page = client.get(reverse(CARDS))
    assert [pile.name for pile in page.context["piles"]] == [f"session-no-{number}" for number in (4, 3, 2)]
    assert "2 more" in page.content.decode()


def test_under_the_bell_a_session_is_one_line_with_its_history(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.alice)
    session = make_running_session(cast.alice, name="mine")
    make_session(cast.bob, name="of-bob")
    assert b"new notification" not in client.get(reverse(BELL)).content, "one's own launch is no news"
    fail(session, "agent-lost", "Its node has not answered.")
    assert "1 new notification" in client.get(reverse(BELL)).content.decode()
    for headers in ({}, HTMX):
        with django_assert_num_queries(8):  # 2 for who asks
            page = client.get(reverse(LIST), **headers).content.decode()
        assert "Its node has not answered." in page and "Launched" in page and "of-bob" not in page
        assert page.count('data-news="') == 1
    client.post(reverse("web:notifications_seen"), **HTMX)
    assert b"new notification" not in client.get(reverse(BELL)).content
    assert "Its node has not answered." in client.get(reverse(LIST)).content.decode()
    assert "Nothing new" in client.post(reverse("web:notifications_clear"), follow=True).content.decode()
    assert SessionNotice.objects.filter(owner=cast.alice).count() == 2, "put away, not deleted"
    assert names(client) == [], "what was put away has no card either"


def test_the_bell_leads_to_what_a_card_leads_to(cast: Cast, browse: Browse) -> None:
    client, actions = browse(cast.alice), ("apps", "terminal", "log", "end")
    session = make_running_session(cast.alice, preopen_ports=[8080])

    def offered() -> list[str]:
        page = client.get(reverse(LIST)).content.decode()
        return [action for action in actions if f'id="news-{action}-{session.pk}"' in page]

    assert offered() == list(actions)
    finish(session)
    assert offered() == ["log"]


def test_the_news_of_an_ended_batch_session_is_its_result(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    session = make_running_session(cast.alice, name="mine", session_type="batch", startup_command="true")
    finish(session)
    page = client.get(reverse(CARDS)).content.decode()
    assert 'data-said="mine: Success"' in page and "Terminated" not in page


def test_each_kind_is_shown_where_its_reader_wants_it(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    NoticeChoice.objects.create(user=cast.alice, kind="started", card=False)
    NoticeChoice.objects.create(user=cast.alice, kind="failed", bell=False)
    session = make_running_session(cast.alice, name="mine")
    assert names(client) == []
    assert "Launched" in client.get(reverse(LIST)).content.decode()
    fail(session)
    assert names(client) == ["mine"]
    page = client.get(reverse(LIST)).content.decode()
    assert "Failed" not in page and "Launched" in page
    assert b"new notification" not in client.get(reverse(BELL)).content


def test_sessions_of_one_launch_that_say_the_same_are_one_card(cast: Cast, browse: Browse) -> None:
    client, agent, launch = browse(cast.alice), make_agent(cpu=32), uuid4()
    many = [make_running_session(cast.alice, agent, name=f"many-{number}") for number in range(4)]
    ComputeSession.objects.update(launch_id=launch)
    make_running_session(cast.alice, agent, name="alone")
    for session in many[:3]:
        fail(session, "agent-lost", "Its node has not answered.")
    piles = client.get(reverse(CARDS)).context["piles"]
    assert [(pile.name, len(pile.cards)) for pile in piles] == [("many", 3), ("alone", 1), ("many-3", 1)]
    page = client.get(reverse(CARDS)).content.decode()
    assert "3 sessions" in page and page.count(reverse("web:card_close", args=[many[2].pk])) == 2
    others = [str(session.pk) for session in many[:2]]
    client.post(reverse("web:card_close", args=[many[2].pk]), {"session": others}, **HTMX)
    assert names(client) == ["alone", "many-3"]


def test_close_all_closes_what_was_shown_and_nothing_that_came_later(cast: Cast, browse: Browse) -> None:
    client, agent = browse(cast.alice), make_agent(cpu=32)
    for number in range(5):
        make_running_session(cast.alice, agent, name=f"session-no-{number}")
    make_running_session(cast.bob, agent, name="of-bob")
    newest = client.get(reverse(CARDS)).context["newest"]
    make_running_session(cast.alice, agent, name="later")
    close = reverse("web:cards_close")
    for nonsense in ("", "-1", "9" * 40, "\u00b2"):
        assert client.post(close, {"until": nonsense}, **HTMX).status_code == 200
    assert len(names(client)) == 3 and names(browse(cast.bob)) == ["of-bob"]
    assert client.post(close, {"until": newest}, **HTMX).status_code == 200
    assert names(client) == ["later"] and names(browse(cast.bob)) == ["of-bob"]


def test_after_some_minutes_only_what_wants_an_answer_has_a_card(cast: Cast, browse: Browse) -> None:
    client, agent = browse(cast.alice), make_agent()
    failed, idle = (
        make_running_session(cast.alice, agent, name="failed"),
        make_running_session(cast.alice, agent, name="idle"),
    )
    make_session(cast.alice, name="waits")
    fail(failed)
    SessionNotice.objects.create(session=idle, owner=cast.alice, kind="idle", message="Unused.", due_at=timezone.now())
    assert sorted(names(client)) == ["failed", "idle", "waits"]
    long_ago = timezone.now() - timedelta(minutes=6)
    SessionNotice.objects.update(created_at=long_ago)
    ComputeSession.objects.update(changed_at=long_ago, started_at=long_ago)
    assert names(client) == ["idle"]
    assert "The &lt;b&gt;disk" in client.get(reverse(LIST)).content.decode(), "the bell keeps it"
