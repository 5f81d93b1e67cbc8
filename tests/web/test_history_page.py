"""The scheduling history as a page, and as the part of it that htmx asks for."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.status import Outcome
from backendai.portal.web.session.reasons.history import PAGE_SIZE
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_group, make_running_session, make_session
from tests.pages import markup
from tests.waiting import make_waiting_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
TIMED = {"step": "pull", "result": "SUCCESS", "message": "3.2 s", "started_at": "2026-01-02T03:04:05+00:00"}
ROWS = HTMX | {"HTTP_HX_TARGET": "history-rows"}
PLAIN = {"step": "fit", "result": "FAILURE", "message": "cpu: 8 asked, 2 free.", "error_code": "no-room"}


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    """A session that waited and then ran."""
    one = make_running_session(cast.alice)
    SchedulingRecord.objects.create(
        session=one, phase="schedule", result="NEED_RETRY", from_status="PENDING", to_status="PENDING", attempts=7,
        error_code="no-room", message="cpu: 8 asked, 2 free.", sub_steps=[PLAIN, TIMED],
    )  # fmt: skip
    return one


def phases(page: str) -> list[str]:
    arrow = r"(?:<button [^>]*></button>)?"
    return re.findall(
        rf'<td class="phase">{arrow}<strong>(Schedule|Start|Precondition[^<]*|Terminate)</strong></td>', page
    )


def test_it_is_a_page_of_its_own_without_scripts(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    client = browse(cast.alice)
    address = reverse("web:history", args=[session.pk])
    assert f'id="history-button" href="{address}"' in markup(client.get(reverse("web:session", args=[session.pk])))
    page = markup(client.get(address))
    assert "<!DOCTYPE html>" in page
    assert sorted(phases(page)) == ["Schedule", "Schedule", "Schedule", "Start"]
    for label in ("ID", "Phase", "Result", "From status", "To status", "Error code", "Message"):
        assert f">{label}</label>" in page
    assert 'aria-label="Refresh"' in page


def test_htmx_gets_the_rows_alone_and_a_box_with_the_filters_to_lie_over_the_panel(
    cast: Cast, browse: Browse, session: ComputeSession
) -> None:
    client, address = browse(cast.alice), reverse("web:history", args=[session.pk])
    part, box = (markup(client.get(address, **headers)) for headers in (ROWS, HTMX))
    assert "<!DOCTYPE" not in part + box
    assert len(phases(part)) == len(phases(box)) == 4
    assert ('id="history-filter"' in part, 'id="history-filter"' in box) == (False, True)


@some(
    ("query", "number"),
    [
        ("phase=start", 1),
        ("result=NEED_RETRY", 1),
        ("from_status=PENDING&to_status=SCHEDULED", 1),
        ("error_code=no-room", 1),
        ("message=8+ASKED", 1),
        ("phase=start&message=8+asked", 0),
        ("id=nonsense", 0),
        ("phase=nonsense", 0),
        ("page=99", 0),
        ("page=%C2%B2&sort=nonsense", 4),
    ],
)
def test_each_field_narrows_the_rows(
    cast: Cast, browse: Browse, session: ComputeSession, query: str, number: int
) -> None:
    part = markup(browse(cast.alice).get(f"{reverse('web:history', args=[session.pk])}?{query}", **ROWS))
    assert len(phases(part)) == number


def test_a_message_is_found_as_its_reader_sees_it(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    waiting = make_waiting_session(cast)
    client, address = browse(cast.alice), reverse("web:history", args=[waiting.pk])

    def found(words: str, language: str = "en") -> int:
        headers = ROWS | {"HTTP_ACCEPT_LANGUAGE": language}
        return markup(client.get(address, {"message": words}, **headers)).count('<tbody id="record-')

    assert found("no agent has  room for 2 CPU cores, 512 mib of") == 1  # a sentence across its values
    assert found("1 of 1 agents ruled out") == 1  # of a step
    assert found("launched.") == 1  # of a row without a message
    for internal in ("{asked}", "{closest}", "insufficient-resources", "values", "text"):
        assert found(internal) == 0
    assert [found(words, "ko") for words in ("지금 2 CPU 코어", "에이전트 1개 중 1개를", "room for 2 CPU")] == [1, 1, 1]
    assert found("지금 2 CPU 코어") == 0
    for number in (1, 31):
        with django_assert_num_queries(5):  # one more than without the filter
            assert found("agents ruled out") == min(number, PAGE_SIZE)
        (row,) = SchedulingRecord.objects.exclude(sub_steps=[])[:1]
        SchedulingRecord.objects.bulk_create(
            SchedulingRecord(session=waiting, phase="schedule", result="NEED_RETRY", sub_steps=row.sub_steps)
            for _ in range(30)
        )


def test_an_id_finds_its_row_and_nonsense_is_said_to_be_none(
    cast: Cast, browse: Browse, session: ComputeSession
) -> None:
    client, address = browse(cast.alice), reverse("web:history", args=[session.pk])
    record = SchedulingRecord.objects.get(error_code="no-room")
    assert f'id="record-{record.uid}"' in markup(client.get(address, {"id": str(record.uid)}))
    assert "ID: Enter a valid UUID." in markup(client.get(address, {"id": "17"}, **ROWS))


def test_it_sorts_by_either_time_both_ways(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    client, address = browse(cast.alice), reverse("web:history", args=[session.pk])
    page = markup(client.get(address))
    assert 'aria-sort="descending"><button class="sorter" type="submit" id="sort-updated_at" name="sort" ' in page
    assert 'value="updated_at"' in page
    for column in ("created_at", "updated_at"):
        upwards = markup(client.get(address, {"sort": column, "ordering": f"-{column}"}))
        assert f'name="ordering" value="{column}"' in upwards
        downwards = markup(client.get(address, {"sort": f"-{column}"}))
        assert phases(upwards) == phases(downwards)[::-1]


def test_it_unfolds_steps_with_times_of_their_own_or_of_their_row(
    cast: Cast, browse: Browse, session: ComputeSession
) -> None:
    page = markup(browse(cast.alice).get(reverse("web:history", args=[session.pk])))
    assert "2 steps</summary>" in page
    assert page.count('class="expander needs-js"') == 2, "only where there are steps"
    record = SchedulingRecord.objects.get(error_code="no-room")
    for moment in ("2026-01-02T03:04:05+00:00", record.updated_at.isoformat()):
        assert f'datetime="{moment}" data-exact' in page
    assert "cpu: 8 asked, 2 free." in page


@pytest.mark.parametrize(
    ("result", "tone"),
    [
        ("SUCCESS", "good"),
        ("FAILURE", "bad"),
        ("EXPIRED", "bad"),
        ("GIVE_UP", "bad"),
        ("NEED_RETRY", "wait"),
        ("SKIPPED", "over"),
    ],
)
def test_each_result_has_its_colour_and_its_word(
    cast: Cast, browse: Browse, session: ComputeSession, result: str, tone: str
) -> None:
    SchedulingRecord.objects.update(result=Outcome(result))
    part = markup(browse(cast.alice).get(reverse("web:history", args=[session.pk]), **ROWS))
    assert re.search(rf'class="status tone-{tone}">\w+', part)


def test_it_turns_pages(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    SchedulingRecord.objects.bulk_create(
        SchedulingRecord(session=session, phase="start", result="SUCCESS") for _ in range(PAGE_SIZE)
    )
    client, address = browse(cast.alice), reverse("web:history", args=[session.pk])
    assert PAGE_SIZE == 10
    first = markup(client.get(address, **ROWS))
    assert (len(phases(first)), 'id="history-more"' in first) == (PAGE_SIZE, True)
    second = markup(client.get(address, {"page": 2}, **ROWS))
    assert (len(phases(second)), 'id="history-back"' in second) == (4, True)


def test_it_asks_the_database_as_often_for_many_rows_as_for_few(
    cast: Cast, browse: Browse, session: ComputeSession, django_assert_num_queries: Callable[..., object]
) -> None:
    client, address = browse(cast.alice), reverse("web:history", args=[session.pk])
    for _ in range(2):
        with django_assert_num_queries(4):  # 2 for who asks, session, rows
            client.get(address)
        SchedulingRecord.objects.bulk_create(
            SchedulingRecord(session=session, phase="start", result="SUCCESS") for _ in range(30)
        )


def test_a_wait_tells_its_place_for_how_long_and_until_when(cast: Cast, browse: Browse) -> None:
    make_group(pending_timeout=timedelta(hours=2))
    one = make_session(cast.alice)
    until = (timezone.now() + timedelta(minutes=20)).isoformat()
    wait = Waiting(one.pk, "behind-in-queue", "bigger asks for 4 cpu first.", {"until": until}, position=3)
    note_waits([wait], now=timezone.now())
    page = markup(browse(cast.alice).get(reverse("web:session", args=[one.pk])))
    assert "Waiting for its turn" in page
    assert 'position <span class="number">3</span> in the queue of default' in page
    assert f'for <time datetime="{one.created_at.isoformat()}"' in page
    assert f'until <time datetime="{until}"' in page
    deadline = (one.created_at + ResourceGroup.objects.get().pending_timeout).isoformat()
    assert f'If the session is still pending at <time datetime="{deadline}"' in page


def test_it_tells_when_a_session_ends_at_the_latest(cast: Cast, browse: Browse) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="short", max_session_lifetime=timedelta(hours=3))
    cast.alice.save()
    one = make_running_session(cast.alice)
    page = markup(browse(cast.alice).get(reverse("web:session", args=[one.pk])))
    assert "<strong>Maximum lifetime</strong> ends the session" in page
    assert "No idle checker" not in page
    assert one.ends_at.isoformat() in page


def test_moments_in_messages_stand_in_the_readers_clock_and_rest_keeps_the_text(
    cast: Cast, browse: Callable[[User], Client]
) -> None:
    session = make_session(cast.alice)
    at, now = timezone.now().replace(microsecond=0) + timedelta(hours=3), timezone.now()
    written = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    message = f"No agent has room <now>. It starts at {written} at the latest, not on 2026-02-31 10:00:00 UTC."
    steps = [{"step": "slots", "result": "FAILURE", "message": message, "error_code": "no-room"}]
    data = {"until": at.isoformat(), "starts_at": at.isoformat()}
    note_waits([Waiting(session.pk, "no-room", message, data, steps=steps)], now=now)
    client = browse(cast.alice)
    moment = f'<time datetime="{at.isoformat()}" data-exact'
    for page, number in (("web:history", 2), ("web:session_info", 3), ("web:session", 1), ("web:session_row", 1)):
        text = re.sub(' data-wait="[^"]*"', "", markup(client.get(reverse(page, args=[session.pk]))))
        assert text.count(moment) >= number
        assert f'<time datetime="{at.isoformat()}" data-ago>in ' in text
        assert f"starts at {written}" not in text
        assert "room &lt;now&gt;." in text
        assert "not on 2026-02-31 10:00:00 UTC." in text
        assert at.isoformat() not in text.replace(f'datetime="{at.isoformat()}"', "")
    answer = client.get(f"/api/v1/sessions/{session.pk}/history/").json()
    assert answer["results"][0]["message"] == message


def test_a_history_that_was_deleted_after_its_time_is_said_to_be_gone(
    cast: Cast, browse: Browse, session: ComputeSession
) -> None:
    SchedulingRecord.objects.all().delete()
    address = reverse("web:history", args=[session.pk])
    assert "Nothing has happened to this session yet." in markup(browse(cast.alice).get(address))
    ComputeSession.objects.update(status="TERMINATED", ended_at=timezone.now())
    assert "The history of this session is no longer kept." in markup(browse(cast.alice).get(address))
