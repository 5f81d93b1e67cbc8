"""Stopping and resuming a session by its page, its list and REST."""

from __future__ import annotations

from datetime import time, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.wire.node_jobs import JobState
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.stop_schedules import set_schedule
from backendai.domain.compute.services.notices.owners import announce
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder
from backendai.scheduler.stop_times import DailyTimes
from tests.cast import Cast
from tests.compute.test_stopping import Stopper, file_servers_answer

pytestmark = pytest.mark.django_db
__all__ = ["file_servers_answer"]


@pytest.fixture
def one(cast: Cast) -> Stopper:
    return Stopper(cast)


@pytest.fixture
def browser(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.alice)
    return client


def test_the_page_stops_shows_the_progress_and_resumes(one: Stopper, browser: Client) -> None:
    page = f"/sessions/{one.session.pk}/"
    assert 'id="stop-button"' in browser.get(page).content.decode()
    assert "Not kept" in browser.get(f"{page}stop/").content.decode()
    assert browser.post(f"{page}stop/").status_code == 302
    assert one.status == Status.STOPPING
    one.tell(JobState.RUNNING, message="3 MB are stored.", progress=0.5)
    shown = browser.get(page).content.decode()
    assert "3 MB are stored." in shown
    assert 'value="0.500"' in shown
    browser.post(f"{page}resume/")  # let it go on
    assert BackgroundJob.objects.get(pk=one.session.home_stores.get().job_id).cancel_requested_at
    one.session.home_stores.all().delete()
    one.session.__class__.objects.update(status=Status.RUNNING)
    one.be_stopped()
    shown = browser.get(page).content.decode()
    assert 'id="resume-button"' in shown
    assert "stop-button" not in shown
    listed = browser.get("/").content.decode()
    assert f"row-player-play-{one.session.pk}" in listed
    assert browser.post(f"{page}resume/").status_code == 302
    assert one.status == Status.PENDING


def test_a_refusal_is_told_in_the_dialog(one: Stopper, browser: Client) -> None:
    one.agent.storage_hosts.update(fault="It is away.")
    answer = browser.post(f"/sessions/{one.session.pk}/stop/", headers={"HX-Request": "true"})
    assert "No storage host can be reached" in answer.content.decode()
    answer = browser.post(f"/sessions/{one.session.pk}/resume/")
    assert "Only a stopped session can be resumed" in answer.content.decode()


def test_the_page_of_an_ended_one_says_where_its_stored_files_are(one: Stopper, browser: Client) -> None:
    page, now = f"/sessions/{one.session.pk}/", timezone.now()
    ended = {"status": Status.TERMINATED, "ended_at": now, "started_at": now - timedelta(minutes=3)}
    ComputeSession.objects.filter(pk=one.session.pk).update(**ended)
    assert "The session ran for" in browser.get(page).content.decode()
    ComputeSession.objects.filter(pk=one.session.pk).update(stopped_at=now, resumes=1)
    shown = browser.get(page).content.decode()
    assert "After it was last resumed, the session ran for" in shown
    assert "went to the trash" in shown


def test_rest_stops_and_resumes(one: Stopper, browser: Client, cast: Cast) -> None:
    address = f"/api/v1/sessions/{one.session.pk}/"
    answer = browser.post(f"{address}stop/", content_type="application/json")
    assert (answer.status_code, answer.json()["kind"]) == (202, "home.store")
    while one.orders():
        one.tell(JobState.DONE, result={"size_bytes": 2**20})
    one.end_kernels()
    found = browser.get(address).json()
    assert (found["status"], found["mounts"]) == ("STOPPED", [])
    assert found["stopped_at"]
    assert Folder.objects.get().used_bytes == 2**20
    answer = browser.post(f"{address}resume/", content_type="application/json")
    assert (answer.status_code, answer.json()["status"]) == (202, "PENDING")
    assert browser.post(f"{address}resume/", content_type="application/json").status_code == 409
    other = Client()
    other.force_login(cast.bob)
    assert other.post(f"{address}stop/", content_type="application/json").status_code == 404


def test_selected_sessions_are_stopped_instead_of_terminated(cast: Cast, browser: Client) -> None:
    one, two = Stopper(cast), Stopper(cast, name="silent-one")
    two.agent.storage_hosts.update(fault="It is away.")
    chosen = {"session": [str(one.session.pk), str(two.session.pk)]}
    assert "Stop sessions instead" in browser.post("/sessions/terminate/", chosen).content.decode()
    answer = browser.post("/sessions/stop/", chosen, follow=True).content.decode()
    assert (one.status, two.status) == (Status.STOPPING, Status.RUNNING)
    assert "1 session is being stopped." in answer
    assert "silent-one: No storage host" in answer


def test_a_schedule_is_set_on_the_page_and_by_rest(one: Stopper, browser: Client, cast: Cast) -> None:
    page, address = f"/sessions/{one.session.pk}/", f"/api/v1/sessions/{one.session.pk}/stop-schedule/"
    assert "Stop it daily" in browser.get(page).content.decode()
    said = {"stop_at": "20:00", "resume_at": "08:00", "time_zone": "Mars"}
    faulty = browser.post(f"{page}stop-schedule/", said).content.decode()
    assert "Mars is not a time zone" in faulty and 'value="20:00"' in faulty
    assert browser.post(f"{page}stop-schedule/", said | {"time_zone": "Asia/Seoul"}).status_code == 302
    assert "Stopped daily at 20:00 (Asia/Seoul)" in browser.get(page).content.decode()
    answer = browser.put(address, {"stop_at": "21:30", "is_weekdays": True}, content_type="application/json")
    expected = {"stop_at": "21:30:00", "resume_at": None, "is_weekdays": True, "time_zone": "UTC"}
    assert (answer.status_code, answer.json(), browser.get(address).json()) == (200, expected, expected)
    assert browser.post(f"{page}stop-schedule/", {"delete": "1"}).status_code == 302
    assert browser.get(address).status_code == browser.delete(address).status_code == 404
    other = Client()
    other.force_login(cast.bob)
    assert other.put(address, {"stop_at": "20:00"}, content_type="application/json").status_code == 404


def test_the_page_says_who_resumes_a_stopped_session(one: Stopper, browser: Client) -> None:
    set_schedule(one.owner, one.session, DailyTimes(time(20), time(8), False, "UTC"), now=timezone.now())
    page = f"/sessions/{one.session.pk}/"
    assert "someone terminates it" not in browser.get(page).content.decode()
    one.be_stopped()
    assert "If nobody resumes it" in browser.get(page).content.decode()
    one.session.__class__.objects.update(status_reason="stopped-by-schedule")
    shown = browser.get(page).content.decode()
    assert "Its schedule resumes it at 08:00 (UTC)." in shown and "If nobody resumes it" not in shown
    one.session.__class__.objects.update(status_reason="agent-drained")
    assert "The platform resumes it by itself" in browser.get(page).content.decode()


@pytest.mark.parametrize(("message", "is_movable"), [("", True), ("Its schedule stops it then.", False)])
def test_only_a_time_limit_has_an_end_that_the_bell_moves(
    one: Stopper, browser: Client, message: str, is_movable: bool
) -> None:
    announce([(one.session.pk, one.owner.pk, message, timezone.now())], timezone.now())
    shown = browser.get("/notifications/").content.decode()
    assert one.session.name in shown
    assert ("Move the end" in shown) == is_movable
