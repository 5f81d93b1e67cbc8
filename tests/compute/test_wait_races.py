"""A pass that says why sessions wait, while their owners end them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from backendai.domain.compute.auditing import World, run_checks
from backendai.domain.compute.models import SchedulingRecord
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.placing import waits
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from tests.cast import make_cast
from tests.factories import make_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def test_a_reason_comes_not_after_the_end_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    people = make_cast()
    ended, waiting = make_session(people.alice), make_session(people.alice)
    read, ends = waits._notes, list[Future[None]]()

    def read_and_be_overtaken(them: Sequence[Waiting]) -> Any:
        notes = read(them)
        ends.append(pool.submit(end))
        if connection.vendor == "postgresql":  # SQLite has one writer: the end waits for the pass
            ends[0].result(60)
        return notes

    def end() -> None:
        try:
            terminate_session(ended, people.alice)
        finally:
            connection.close()

    monkeypatch.setattr(waits, "_notes", read_and_be_overtaken)
    with ThreadPoolExecutor(1) as pool:
        note_waits([Waiting(one.pk, "no-room", "There is no room.") for one in (ended, waiting)], now=timezone.now())
        ends[0].result(60)
    ended.refresh_from_db()
    waiting.refresh_from_db()
    assert (ended.status, waiting.status_reason) == ("CANCELLED", "no-room")
    last = SchedulingRecord.objects.filter(session=ended).order_by("id").values_list("to_status", flat=True).last()
    assert last == "CANCELLED"
    assert run_checks(World(timezone.now()), ["I-02"]) == {}
