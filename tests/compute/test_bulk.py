"""Statements for many rows do what the ORM does for one."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.db import DatabaseError, transaction
from django.db.models import F
from django.utils import timezone

from backendai.base.db.bulk import among, insert_rows, update_returning, update_rows
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord
from backendai.domain.compute.services.status.moves import StatusCause, move
from backendai.domain.compute.status import Phase, Status
from tests.cast import Cast
from tests.factories import make_session

pytestmark = pytest.mark.django_db
TABLE = ComputeSession._meta.db_table


def test_it_finds_exactly_the_rows_of_many_ids(cast: Cast) -> None:
    sessions = [make_session(cast.alice) for _ in range(3)]
    wanted = [sessions[0].pk, sessions[2].pk, uuid4()]
    found = ComputeSession.objects.filter(pk__in=among(wanted)).values_list("pk", flat=True)
    assert set(found) == {sessions[0].pk, sessions[2].pk}
    assert not ComputeSession.objects.filter(pk__in=among([])).exists()


def test_each_row_gets_its_own_values_and_all_get_the_common_ones(cast: Cast) -> None:
    first, second, other = (make_session(cast.alice) for _ in range(3))
    columns = {
        "status_message": ("text", ['it\'s "quoted" \\ {a,b} NULL é', ""]),
        "status_data": ("jsonb", ['{"free": [1, "x\\"y"]}', "{}"]),
        "queue_position": ("integer", [7, None]),
    }
    update_rows(TABLE, [first.pk, second.pk], columns, always={"status_reason": "no-room"}, counting=["version"])
    for session in (first, second, other):
        session.refresh_from_db()
    assert first.status_message == 'it\'s "quoted" \\ {a,b} NULL é'
    assert (first.status_data, first.queue_position, second.queue_position) == ({"free": [1, 'x"y']}, 7, None)
    assert [session.status_reason for session in (first, second, other)] == ["no-room", "no-room", ""]
    assert [session.version for session in (first, second, other)] == [1, 1, 0]


def test_a_row_that_has_moved_on_is_not_written(cast: Cast) -> None:
    session = make_session(cast.alice)
    columns = {"status_reason": ("text", ["no-room"])}
    update_rows(TABLE, [session.pk], columns, only_if=("status", Status.RUNNING))
    session.refresh_from_db()
    assert session.status_reason == ""


def test_an_update_returns_what_the_rows_hold_afterwards(cast: Cast) -> None:
    session = make_session(cast.alice)
    rows = ComputeSession.objects.filter(pk=session.pk, status=Status.PENDING)
    changes = {"moved_from": F("status"), "status": Status.CANCELLED}
    assert update_returning(rows, changes, ["moved_from", "status"]) == [("PENDING", "CANCELLED")]
    assert update_returning(rows, changes, ["status"]) == []


def test_a_move_that_no_status_allows_moves_nothing(cast: Cast) -> None:
    session = make_session(cast.alice)
    assert move([session.pk], Status.SCHEDULED, StatusCause(Phase.SCHEDULE), only_from=[Status.RUNNING]) == set()
    assert update_returning(ComputeSession.objects.filter(status__in=[]), {"status": "ERROR"}, ["id"]) == []


def test_rows_hold_what_was_given_whatever_its_signs(cast: Cast) -> None:
    session = make_session(cast.alice)
    texts = ["plain", "", "a\ttab", "two\nlines\r", "back\\slash \\t", "\\N", 'it\'s "quoted" é 🦔']
    columns = {
        "uid": [uuid4() for _ in texts],
        "session_id": [session.pk.hex] * len(texts),
        "message": texts,
        "sub_steps": [json.dumps([["step", text]]) for text in texts],
        "created_at": timezone.now(),
        "updated_at": timezone.now(),
    }
    common = {"phase": "schedule", "result": "SUCCESS", "from_status": "", "to_status": "", "error_code": ""}
    insert_rows(SchedulingRecord._meta.db_table, columns | common | {"attempts": 1})
    found = session.records.filter(uid__in=columns["uid"]).order_by("id").values_list("uid", "message", "sub_steps")
    assert list(found) == [(uid, text, [["step", text]]) for uid, text in zip(columns["uid"], texts, strict=True)]


def test_nothing_is_a_value_among_others(cast: Cast) -> None:
    sessions = [make_session(cast.alice) for _ in range(2)]
    insert_rows(
        Kernel._meta.db_table,
        dict.fromkeys(("role", "status_reason", "status_message", "container_id", "moved_from"), "")
        | dict.fromkeys(("image_digest", "startup_command"), "")
        | dict.fromkeys(("created_at", "changed_at"), timezone.now())
        | dict.fromkeys(("slots", "devices", "environ"), "{}")
        | {
            "id": [uuid4(), uuid4()], "session_id": [one.pk for one in sessions], "index": 1, "rank": 7,
            "hostname": "sub7", "status": "PENDING", "exit_code": [None, 3], "generation": 0, "steps": "[]",
            "is_unconfirmed": False,
        },
    )  # fmt: skip
    assert [one.kernels.get(rank=7).exit_code for one in sessions] == [None, 3]


def test_what_the_database_refuses_is_an_error_of_django() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        insert_rows(SchedulingRecord._meta.db_table, {"uid": [uuid4()]})
