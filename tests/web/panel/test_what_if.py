"""What if: the sessions of the last days under other rules, as a job whose result is a page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.activity.models import BackgroundJob
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.forecasts.what_if import run_what_if
from backendai.scheduler.sequences import SEQUENCES
from tests.cast import Cast
from tests.factories import copy_of, make_agent, make_group, make_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
ADDRESS, HOUR = "/manage/what-if/", timedelta(hours=1)


@pytest.fixture
def past(cast: Cast) -> None:
    """Four sessions of one hour on one agent for one of them at a time, launched together nine hours ago."""
    make_agent("node-1", cpu=1)
    first, began = make_session(cast.alice), timezone.now() - 9 * HOUR
    ComputeSession.objects.bulk_create(
        copy_of(
            first, name=f"past-{number}", status=Status.TERMINATED, created_at=began + timedelta(minutes=number),
            started_at=began + number * HOUR, ended_at=began + (number + 1) * HOUR,
        )
        for number in range(4)
    )  # fmt: skip
    first.delete()


def ask(dana: Client, **over: Any) -> Any:
    values = {"group": make_group().pk, "days": 3, "sequence": "lifo", "added": "3 x cpu=1,mem=8g"}
    return dana.post(ADDRESS, values | over)


@pytest.mark.usefixtures("past")
def test_a_request_becomes_a_page_with_both_sides(dana: Client) -> None:
    assert "None yet." in markup(dana.get(ADDRESS))
    sent = ask(dana)
    job = BackgroundJob.objects.get()
    assert (sent.status_code, sent["Location"]) == (302, f"{ADDRESS}{job.pk}/")
    waiting = markup(dana.get(sent["Location"]))
    assert "Waits for its turn." in waiting
    assert "Cancel replay" in waiting
    again = ask(dana)
    assert (again.status_code, "This is already running" in markup(again)) == (422, True)
    run_what_if(job.pk, timezone.now)
    job.refresh_from_db()
    assert job.status == BackgroundJob.Status.DONE
    before, after = job.result["figures"]
    assert before["longest"] > 2.9 * 3600 > after["longest"] == 0
    assert job.result["rules"] == [["fifo", False], ["lifo", False]]
    longest = [max(wait for wait, _ in line if wait is not None) for line in job.result["lines"]]
    assert longest[0] > 3600 > longest[1] == 0
    for line, cores in zip(job.result["lines"], (1, 4), strict=True):
        held = sum(share for _, share in line) * job.result["seconds"] * cores
        assert held == pytest.approx(4 * 3600, rel=0.01)
    page = markup(dana.get(sent["Location"]))
    assert page.count("<polyline") == 4
    assert "past-3" in page
    assert "starts earlier" in page
    assert "hx-get" not in page.partition('id="what-if"')[2].partition(">")[0]
    assert "+ 3 x cpu=1,mem=8g" in markup(dana.get(ADDRESS))


@pytest.mark.parametrize("sequence", sorted(SEQUENCES))
@pytest.mark.usefixtures("past")
def test_every_sequence_can_be_tried(dana: Client, sequence: str) -> None:
    ask(dana, sequence=sequence, backfill="on", added="")
    run_what_if(BackgroundJob.objects.get().pk, timezone.now)
    job = BackgroundJob.objects.get()
    assert (job.status, job.result["rules"][1]) == (BackgroundJob.Status.DONE, [sequence, True])
    assert job.result["figures"][1]["never"] == 0


@pytest.mark.parametrize("added", ["many", "2 x ", "2000 x cpu=1", "1 x cpu=lots", "0 x cpu=1", "1 x cpus=4"])
def test_wrong_agents_are_refused_at_their_field_and_stay(dana: Client, added: str) -> None:
    refused = ask(dana, added=added)
    assert refused.status_code == 422
    assert list(refused.context["form"].errors) == ["added"]
    assert f'value="{added}"' in markup(refused)
    assert not BackgroundJob.objects.exists()


@pytest.mark.usefixtures("past")
def test_what_is_left_empty_is_as_in_the_group(dana: Client) -> None:
    ResourceGroup.objects.update(sequence="lifo", backfill=True)
    ask(dana, sequence="")
    what = BackgroundJob.objects.get().result["what"]
    assert (what["sequence"], what["backfill"]) == ("lifo", True)


@pytest.mark.usefixtures("past")
def test_it_can_be_cancelled_and_says_so(dana: Client) -> None:
    address = ask(dana)["Location"]
    assert dana.post(address).status_code == 302
    assert "being cancelled" in markup(dana.get(address))
    times = iter(timezone.now() + timedelta(seconds=2 * number) for number in range(10_000))

    def clock() -> datetime:
        return next(times)

    run_what_if(BackgroundJob.objects.get().pk, clock)
    assert BackgroundJob.objects.get().status == BackgroundJob.Status.CANCELLED
    page = markup(dana.get(address))
    assert "Cancelled." in page
    assert "<polyline" not in page


def test_without_sessions_it_fails_and_says_what_to_do(dana: Client) -> None:
    make_agent("node-1")
    address = ask(dana)["Location"]
    run_what_if(BackgroundJob.objects.get().pk, timezone.now)
    page = markup(dana.get(address))
    assert "No session of group default has ended in this time" in page
