"""Why a session waits is shown and kept, and costs next to nothing while it stays the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.wire import browser
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from tests.cast import Cast
from tests.factories import make_agent, make_session, make_sessions, place

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NO_ROOM = {"code": "no-room", "message": "cpu: 8 asked, 2 available."}
BEHIND = {"code": "behind-in-queue", "message": "Waits for its turn.", "skipped": True}


def wait(session: ComputeSession, **over: Any) -> None:
    note_waits([Waiting(session.pk, **(NO_ROOM | over))], now=over.pop("now", None) or timezone.now())
    session.refresh_from_db()


def rows(session: ComputeSession) -> list[tuple[str, str, int]]:
    found = SchedulingRecord.objects.filter(session=session).exclude(from_status="").order_by("id")
    return list(found.values_list("error_code", "result", "attempts"))


def statements(waits: list[Waiting]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        note_waits(waits, now=timezone.now())
    return [query["sql"] for query in captured.captured_queries]


def test_one_unchanged_reason_over_ten_thousand_passes_is_one_row_with_a_count(cast: Cast) -> None:
    session = make_session(cast.alice)
    for _ in range(30):
        wait(session)
    assert rows(session) == [("no-room", "NEED_RETRY", 30)]
    SchedulingRecord.objects.filter(session=session).update(attempts=9_999)
    wait(session)
    assert rows(session)[-1] == ("no-room", "NEED_RETRY", 10_000)
    assert session.attempts == 31


def test_reasons_that_take_turns_keep_their_order_in_the_history(cast: Cast) -> None:
    session = make_session(cast.alice)
    for reason in (NO_ROOM, NO_ROOM, BEHIND, NO_ROOM, BEHIND, BEHIND):
        wait(session, **reason)
    assert [(code, count) for code, _, count in rows(session)] == [
        ("no-room", 2),
        ("behind-in-queue", 1),
        ("no-room", 1),
        ("behind-in-queue", 2),
    ]


def test_the_same_reason_with_new_numbers_is_the_same_row_with_the_new_words(cast: Cast) -> None:
    session = make_session(cast.alice)
    wait(session, data={"free": 2})
    wait(session, message="cpu: 8 asked, 4 available.", data={"free": 4}, steps=[{"step": "capacity"}])
    assert rows(session) == [("no-room", "NEED_RETRY", 2)]
    record = SchedulingRecord.objects.get(session=session, error_code="no-room")
    assert (record.message, record.sub_steps) == ("cpu: 8 asked, 4 available.", [{"step": "capacity"}])
    assert (session.status_message, session.status_data) == ("cpu: 8 asked, 4 available.", {"free": 4})


def test_a_try_and_a_skip_for_the_same_reason_are_two_rows(cast: Cast) -> None:
    session = make_session(cast.alice)
    wait(session)
    wait(session, skipped=True)
    assert rows(session) == [("no-room", "NEED_RETRY", 1), ("no-room", "SKIPPED", 1)]
    assert session.attempts == 1


def test_what_happens_in_between_begins_a_new_row(cast: Cast) -> None:
    agent = make_agent()
    session = make_session(cast.alice)
    wait(session)
    place(session, agent)
    assert (session.wait_digest, session.wait_record, session.queue_position) == ("", None, None)
    ComputeSession.objects.filter(pk=session.pk).update(status="PENDING")
    wait(session)
    assert [count for _, _, count in rows(session)] == [1, 1, 1]


def test_its_place_in_the_queue_is_kept_apart_from_the_reason(cast: Cast) -> None:
    session = make_session(cast.alice)
    wait(session, position=3)
    version = session.version
    wait(session, position=2)
    assert (session.queue_position, session.version) == (2, version)
    assert rows(session) == [("no-room", "NEED_RETRY", 2)]


def test_a_new_reason_is_told_to_browsers_and_an_unchanged_one_is_not(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(browser, "publish", told.extend)
    session = make_session(cast.alice)
    for reason in (NO_ROOM, NO_ROOM, BEHIND):
        with django_capture_on_commit_callbacks(execute=True):
            wait(session, **reason)
    assert [(event.id, event.version) for event in told] == [(str(session.pk), 1), (str(session.pk), 2)]


def test_since_when_others_may_pass_it_is_noted_once_and_forgotten_when_it_is_placed(cast: Cast) -> None:
    session, started_at = make_session(cast.alice), timezone.now()
    for hours in range(3):
        note_waits([Waiting(session.pk, **NO_ROOM, overtaken=True)], now=started_at + timedelta(hours=hours))
    session.refresh_from_db()
    assert session.overtaken_since == started_at
    place(session, make_agent())
    assert session.overtaken_since is None


def test_a_session_that_is_not_pending_any_more_is_left_alone(cast: Cast) -> None:
    session = make_session(cast.alice)
    terminate_session(session, cast.alice)
    wait(session)
    assert session.status_reason == "user-requested"
    assert [code for code, _, _ in rows(session)] == ["user-requested"]


def test_the_number_of_statements_does_not_grow_with_the_sessions(cast: Cast) -> None:
    few, many = make_sessions(cast.alice, 2), make_sessions(cast.bob, 40)

    def waits(sessions: list[ComputeSession], number: int) -> list[Waiting]:
        return [
            Waiting(one.pk, "no-room", f"{number} asked by {one.name}", {"n": number}, position=place)
            for place, one in enumerate(sessions)
        ]

    for number in (1, 1, 2):
        assert len(statements(waits(few, number))) == len(statements(waits(many, number)))


def test_an_unchanged_reason_rewrites_no_text(cast: Cast) -> None:
    sessions = [make_session(cast.alice) for _ in range(3)]
    waits = [Waiting(one.pk, **BEHIND, position=place) for place, one in enumerate(sessions)]
    note_waits(waits, now=timezone.now())
    writes = [text for text in statements(waits) if text.startswith("UPDATE")]
    assert len(writes) == 1
    assert "message" not in writes[0]
    assert "sub_steps" not in writes[0]
