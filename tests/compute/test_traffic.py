"""When sessions were used last: noted for every byte, written now and then, never earlier than it was."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import DatabaseError
from django.utils import timezone

from backendai.domain.compute.models import SessionTraffic
from backendai.domain.compute.services.records import traffic
from backendai.domain.compute.services.records.traffic import WRITTEN_EVERY, Meter, note_traffic
from tests.cast import Cast
from tests.factories import make_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    """A meter whose thread the test stands in for."""
    found = Meter()
    monkeypatch.setattr(found, "_start", lambda: None)
    return found


def test_it_never_goes_back_and_passes_over_what_is_no_more(cast: Cast, django_assert_num_queries: Any) -> None:
    one, two, now = make_session(cast.alice), make_session(cast.alice), timezone.now()
    with django_assert_num_queries(1):
        note_traffic({one.pk: now, two.pk: now, uuid.uuid4(): now})
    note_traffic({one.pk: now - timedelta(hours=1), two.pk: now + timedelta(hours=1)})
    found = dict(SessionTraffic.objects.values_list("session_id", "last_at"))
    assert found == {one.pk: now, two.pk: now + timedelta(hours=1)}


def test_a_rested_session_is_written_at_once_and_a_busy_one_every_half_minute(cast: Cast, meter: Meter) -> None:
    session, now = make_session(cast.alice), timezone.now()
    written = []
    for second in range(95):
        with mock.patch("django.utils.timezone.now", return_value=now + timedelta(seconds=second)):
            meter.touch(session.pk)
        if meter.write(now + timedelta(seconds=second)):
            written.append(second)
    assert written == [0, 30, 60, 90]
    assert SessionTraffic.objects.get().last_at == now + timedelta(seconds=90)
    assert meter.write(now + WRITTEN_EVERY + timedelta(seconds=90)) == 1
    assert SessionTraffic.objects.get().last_at == now + timedelta(seconds=94)
    assert meter.write(now + timedelta(hours=1)) == 0


def test_what_the_database_does_not_take_is_written_later(cast: Cast, meter: Meter) -> None:
    session, now = make_session(cast.alice), timezone.now()
    meter.touch(session.pk)
    with mock.patch.object(traffic, "write_latest", side_effect=DatabaseError), pytest.raises(DatabaseError):
        meter.write(now)
    assert meter.write(now + timedelta(seconds=1)) == 1
    assert SessionTraffic.objects.exists()


def test_the_last_words_are_written_however_lately_it_was(cast: Cast, meter: Meter) -> None:
    session, now = make_session(cast.alice), timezone.now()
    meter.touch(session.pk)
    assert meter.write(now) == 1
    meter.touch(session.pk)
    assert (meter.write(now), meter.write(now, everything=True)) == (0, 1)


def test_its_end_writes_what_is_left_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, written, one, two = Meter(), list[set[uuid.UUID]](), uuid.uuid4(), uuid.uuid4()
    monkeypatch.setattr(traffic, "note_traffic", lambda due: written.append(set(due)))
    meter.close()  # nothing was used yet
    for used in (one, two):  # it can be used again afterwards
        meter.touch(used)
        thread = meter._thread
        assert thread is not None
        meter.close()
        assert not thread.is_alive()
    assert written == [{one}, {two}]
