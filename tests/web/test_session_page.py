"""The page of one session."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.base.wire.usage import KernelUsage, UsageReport
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.services import mark_lost
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.launching.sharing import share_session
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.status import Status
from backendai.domain.usage.recording import keep
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_running_session, make_session, place, report_of
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def text_of(answer: HttpResponse) -> str:
    return markup(answer)


def test_it_shows_state_and_kernels(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    page = markup(browse(cast.alice).get(reverse("web:session", args=[session.pk])))
    assert 'data-status="RUNNING"' in page
    assert "main1" in page
    assert f"/ws/sessions/{session.pk}/terminal/" in page


@some("name", ["session", "console", "home", "history", "session_ssh"], 2)
def test_each_of_its_pages_is_marked_in_the_menu(cast: Cast, browse: Browse, name: str) -> None:
    session = make_session(cast.alice)
    page = markup(browse(cast.alice).get(reverse(f"web:{name}", args=[session.pk])))
    assert f'<a href="{reverse("web:sessions")}" aria-current="page">' in page


def test_it_asks_the_database_as_often_for_a_cluster_as_for_one_kernel(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    client = browse(cast.alice)
    for cluster_size in (1, 4):
        session = make_running_session(cast.alice, cluster_size=cluster_size, resources={"cpu": 1, "mem": "128m"})
        # 2 for who asks, session, kernels, its order among others, history, slot types, 3 for what it used,
        # 3 for idle checkers
        with django_assert_num_queries(15):
            client.get(reverse("web:session", args=[session.pk]))


def test_it_says_when_the_memory_limit_ended_a_program(cast: Cast, browse: Browse) -> None:
    client, session = browse(cast.alice), make_running_session(cast.alice, resources={"cpu": 1, "mem": "512m"})
    address, kernel = reverse("web:session", args=[session.pk]), session.kernels.get()
    assert kernel.agent and kernel.started_at and "memory-kill" not in text_of(client.get(address))

    def tell(number: int, seconds: float) -> str:
        at = timezone.now() + timedelta(seconds=seconds)
        usage = KernelUsage(kernel_id=kernel.pk, generation=kernel.generation, seconds=1, memory_kills=number)
        keep([(kernel.agent, UsageReport(at=at.timestamp(), kernels=[usage]))], at)  # type: ignore[list-item]
        return re.sub("<[^>]+>", "", text_of(client.get(address)))

    assert re.search(r"A program was ended at [^.]+, as it needed more than the memory limit of 512 MiB\.", tell(1, 10))
    assert "3 programs were ended, the last one at" in tell(3, 20)
    Kernel.objects.update(started_at=timezone.now() + timedelta(seconds=30))
    assert "were ended" not in text_of(client.get(address)), "that was before it was started again"


def test_a_cluster_says_that_its_kernels_have_no_host_files_where_they_have_none(cast: Cast, browse: Browse) -> None:
    client, said = browse(cast.alice), "no host files and no SSH to each other"
    pool = make_agent("pool", capabilities=["images"])
    engine = make_agent("engine", capabilities=["images", "cluster-files"])
    for agent, size, is_said in ((pool, 2, True), (pool, 1, False), (engine, 2, False)):
        session = make_running_session(cast.alice, agent, cluster_size=size, resources={"cpu": 1, "mem": "128m"})
        page = text_of(client.get(reverse("web:session", args=[session.pk])))
        assert (f"Kernels on agent {agent.name} have {said}" in page) is is_said


def test_it_tells_the_reason_the_place_and_the_steps_of_a_wait(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    step = {
        "step": "agent-selection",
        "result": "FAILURE",
        "message": "node-1: cpu 8 asked, 2 free.",
        "error_code": "no-room",
    }
    wait = Waiting(session.pk, "no-room", "cpu: 8 asked, 2 available.", steps=[step], position=2)
    note_waits([wait], now=timezone.now())
    page = markup(browse(cast.alice).get(reverse("web:session", args=[session.pk])))
    assert 'position <span class="number">2</span> in the queue of default' in page
    assert "for <time" in page
    assert "cpu: 8 asked, 2 available." in page
    info = text_of(browse(cast.alice).get(reverse("web:session_info", args=[session.pk])))
    assert "node-1: cpu 8 asked, 2 free." in info
    assert 'Position in the queue</dt><dd class="number">2</dd>' in info


def test_it_names_what_a_session_starts_after_and_what_waits_for_it(cast: Cast, browse: Browse) -> None:
    job = {"session_type": "batch", "startup_command": "true"}
    first = make_running_session(cast.alice, name="first", **job)
    second = make_session(cast.alice, name="second", depends_on=[str(first.pk)], **job)
    note_waits([Waiting(second.pk, "dependency-not-finished", "1 of 1: first.", {})], now=timezone.now())
    client = browse(cast.alice)
    page = text_of(client.get(reverse("web:session", args=[second.pk])))
    assert f'Starts after the success of: <a id="awaits-{first.pk}"' in page
    assert "Depends on" in page
    page = text_of(client.get(reverse("web:session", args=[first.pk])))
    assert "Depended on by" in page
    page = text_of(client.get(reverse("web:terminate", args=[first.pk])))
    assert "1 session depends on this one and will be cancelled too: <bdi>second</bdi>." in page


def test_it_tells_a_start_time_once_and_in_the_readers_zone(cast: Cast, browse: Browse) -> None:
    at = timezone.now() + timedelta(hours=3)
    session = make_session(cast.alice, session_type="batch", startup_command="true", starts_at=at)
    note_waits([Waiting(session.pk, "start-time-not-reached", "Asked to start at noon UTC.", {})], now=timezone.now())
    client = browse(cast.alice)
    for name in ("session_panel", "session_row"):
        page = text_of(client.get(reverse(f"web:{name}", args=[session.pk])))
        assert "tarts at <time" in page or "Earliest start: <time" in page
        assert ">Asked to start at" not in page


def test_it_marks_what_can_never_start_and_says_what_to_change(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    message = "No agent is large enough, even when empty: node-1 comes closest (cpu: 64 asked, 8 available)."
    note_waits([Waiting(session.pk, "bigger-than-any-agent", message, {"never": True})], now=timezone.now())
    client = browse(cast.alice)
    page = markup(client.get(reverse("web:session", args=[session.pk])))
    assert "Cannot start" in page
    assert message in page
    assert "Ask for less" in page
    assert f"?like={session.pk}" in page
    assert "Cannot start" in markup(client.get(reverse("web:session_row", args=[session.pk])))


def test_it_counts_the_tries_of_a_start_that_failed(cast: Cast, browse: Browse) -> None:
    agent, session = make_agent(), make_session(cast.alice)
    place(session, agent)
    failed = report_of(session.kernels.get(), KernelState.TERMINATED, reason="failed-to-start", message="No.")
    kernel_reported(agent, failed)
    for name in ("session", "session_row"):
        assert "attempt 2 of 4" in markup(browse(cast.alice).get(reverse(f"web:{name}", args=[session.pk])))


def test_it_explains_a_node_that_does_not_answer(cast: Cast, browse: Browse) -> None:
    agent = make_agent("node-7")
    session = make_running_session(cast.alice, agent)
    address = reverse("web:session", args=[session.pk])
    assert "does not answer" not in markup(browse(cast.alice).get(address))
    mark_lost(now=timezone.now(), silent_for=timedelta())
    page = markup(browse(cast.alice).get(address))
    assert "Agent node-7 is unreachable" in page
    assert "the session ends" in page
    terminate_session(session, cast.alice)
    assert "an administrator can free the resources" in markup(browse(cast.alice).get(address))
    assert "force the termination" in markup(browse(cast.dana).get(address))


def test_it_shows_how_far_each_kernel_is_with_its_image(cast: Cast, browse: Browse) -> None:
    agent, session = make_agent(), make_session(cast.alice, cluster_size=2)
    place(session, agent)
    for kernel, progress in zip(session.kernels.all(), (0.25, 0.5), strict=True):
        kernel_reported(agent, report_of(kernel, KernelState.PULLING, progress=progress))
    page = markup(browse(cast.alice).get(reverse("web:session", args=[session.pk])))
    assert 'value="0.250" aria-label="Image pulled by main1"' in page
    assert 'value="0.500" aria-label="Image pulled by sub1"' in page
    assert '<span class="number">25 %</span>' in page


def test_it_allows_inline_styles_on_the_terminals_page_alone(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    client = browse(cast.alice)
    policy = client.get(reverse("web:session", args=[session.pk]))["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src 'self';" in policy + ";"
    assert "unsafe" not in client.get(reverse("web:sessions"))["Content-Security-Policy"]


def test_pages_of_a_native_session_name_no_container(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    pages = [client.get(reverse("web:sessions"))]
    session = make_running_session(cast.alice, make_agent("native", backend="process"))
    pages += [client.get(reverse(f"web:{name}", args=[session.pk])) for name in ("session", "terminate")]
    pages.append(client.post(reverse("web:terminate_many"), {"session": [session.pk]}))
    Image.objects.update(process_reference="python")
    pages.append(client.get(reverse("web:launch")))
    for page in pages:
        assert page.status_code == 200
        said = re.findall(r"(?i).*\bcontainers?\b.*", re.sub(r"<[^>]*>", " ", markup(page)))
        assert [line for line in said if "no container engine: its sessions" not in line] == []


def test_it_warns_of_the_loss_and_ends_the_session_on_post(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    client, address = browse(cast.alice), reverse("web:terminate", args=[session.pk])
    assert "kernels will be deleted" in markup(client.get(address))
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    answer = client.post(address)
    assert answer["Location"] == reverse("web:session", args=[session.pk])
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "user-requested")


def test_it_says_so_when_the_session_has_ended_already(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    terminate_session(session, cast.alice)
    answer = browse(cast.alice).post(reverse("web:terminate", args=[session.pk]))
    assert "already ended" in str(next(iter(get_messages(answer.wsgi_request))))


def test_a_batch_session_that_failed_ends_in_red_and_without_empty_charts(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice, session_type="batch", startup_command="false")
    ended = {"status": Status.TERMINATED, "result": "FAILED", "ended_at": timezone.now()}
    type(session).objects.filter(pk=session.pk).update(**ended)
    page = text_of(browse(cast.alice).get(reverse("web:session", args=[session.pk])))
    assert '<div class="alert alert-danger notice state-notice">' in page
    assert "nothing was measured" in page
    assert "usage-chart" not in page


def test_it_refuses_to_end_a_session_without_the_forms_token(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice)
    answer = client.post(reverse("web:terminate", args=[session.pk]))
    assert answer.status_code == 403
    assert b"The form has expired" in answer.content


@pytest.mark.django_db
def test_the_page_of_a_guest_renews_itself_without_the_events_of_the_owner(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    share_session(session, cast.alice, "view", email=cast.bob.email, now=timezone.now())
    asks = {}
    for person in (cast.alice, cast.bob):
        client = Client()
        client.force_login(person)
        page = client.get(f"/sessions/{session.pk}/").content.decode()
        asks[person] = re.search(r'id="session-head"[^>]*hx-trigger="([^"]*)"', page)[1]  # type: ignore[index]
    assert asks == {cast.alice: "look-again", cast.bob: "look-again, every 10s"}
