"""What opens over a session's panel: why it is as it is, and another name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_running_session, make_session, place, report_of
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def info_of(client: Client, session: ComputeSession, **headers: str) -> str:
    return markup(client.get(reverse("web:session_info", args=[session.pk]), **headers))


def test_a_wait_is_explained_with_numbers_and_with_passed_and_failed_gates(cast: Cast, browse: Browse) -> None:
    session, other = make_session(cast.alice), make_session(cast.bob)
    steps = [
        {"step": "sequencing", "result": "SUCCESS", "message": "first of 9"},
        {"step": "slots", "result": "FAILURE", "message": "removed 3 of 3 agents", "error_code": "no-room"},
    ]
    data = {"free": "2", "blocker": str(other.pk), "never": False, "agents": 3, "agent": "local"}
    for _ in range(4):
        wait = Waiting(session.pk, "no-room", "cpu: 8 asked, 2 available.", data, steps=steps, position=5)
        note_waits([wait], now=timezone.now())
    client = browse(cast.alice)
    assert "<!DOCTYPE" not in info_of(client, session, **HTMX)
    page = info_of(client, session)
    assert "<p>cpu: 8 asked, 2 available.</p>" in page
    assert 'Position in the queue</dt><dd class="number">5</dd>' in page
    assert 'Scheduling attempts</dt><dd class="number">4</dd>' in page
    assert '<dt>Free</dt><dd class="number"><bdi>2</bdi></dd>' in page
    assert '<dt>Agents</dt><dd class="number"><bdi>3</bdi></dd>' in page
    assert '<dt>Closest agent</dt><dd class="number"><bdi>local</bdi></dd>' in page, "it has none yet"
    assert str(other.pk) not in page, "whose session is in the way is that person's affair"
    assert page.index("removed 3 of 3 agents") < page.index('title="first of 9"')


def test_the_box_says_resources_and_steps_as_people_do_and_what_runs_runs(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    steps = [{"step": "start-time", "result": "FAILURE", "message": "It holds 3 of 4.", "error_code": "slot-limit"}]
    data = {"slot": "cpu", "limit": "4", "starts_at": "2026-01-02T03:04:05+00:00"}
    note_waits([Waiting(session.pk, "slot-limit", "It holds 3 of 4.", data, steps=steps)], now=timezone.now())
    page = info_of(browse(cast.alice), session)
    assert '<dt>Slot</dt><dd class="number"><bdi>CPU</bdi></dd>' in page
    assert "<strong>Start time</strong>" in page
    assert "2026-01-02T03:04:05" not in page
    running = make_running_session(cast.alice, name="runs")
    assert '<h1 id="box-title">Running</h1>' in info_of(browse(cast.alice), running)


def test_an_end_is_explained_with_exit_codes_and_failed_starts(cast: Cast, browse: Browse) -> None:
    agent, client = make_agent(), browse(cast.alice)
    session = make_session(cast.alice)
    place(session, agent)
    refused = report_of(session.kernels.get(), KernelState.TERMINATED, reason="failed-to-start", message="No.")
    kernel_reported(agent, refused)
    page = info_of(client, session)
    assert '<span class="number">1</span> of at most <span class="number">4</span>' in page
    assert "1 agent is avoided" in page
    killed = make_running_session(cast.alice, agent)
    kernel_reported(agent, report_of(killed.kernels.get(), KernelState.TERMINATED, exit_code=137, reason="exited"))
    page = info_of(client, killed)
    assert "Ended" in page and "exit 137" in page and "SIGKILL" in page


def test_an_end_on_order_does_not_look_like_a_failure(cast: Cast, browse: Browse) -> None:
    agent, client = make_agent(), browse(cast.alice)
    session = make_running_session(cast.alice, agent)
    terminate_session(session, cast.alice)
    kernel_reported(agent, report_of(session.kernels.get(), KernelState.TERMINATED, exit_code=143))
    for page in (info_of(client, session), markup(client.get(f"/sessions/{session.pk}/"))):
        assert "stopped (SIGTERM)" in page and "exit 143" not in page and "was terminated" not in page
    by_itself = make_running_session(cast.alice, agent)
    kernel_reported(agent, report_of(by_itself.kernels.get(), KernelState.TERMINATED, exit_code=143, reason="exited"))
    page = info_of(client, by_itself)
    assert "exit 143" in page and "was terminated (SIGTERM)" in page


def test_the_number_of_a_platform_error_is_for_administrators(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    wait = Waiting(session.pk, "scheduler-error", "The scheduler fails.", {"error": "e-4711", "never": True})
    note_waits([wait], now=timezone.now())
    assert 'data-copy="e-4711"' in info_of(browse(cast.dana), session)
    assert "e-4711" not in info_of(browse(cast.alice), session)


def test_it_explains_in_a_fixed_number_of_queries(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    agent, client = make_agent(), browse(cast.alice)
    for cluster_size in (1, 4):
        session = make_session(cast.alice, cluster_size=cluster_size, resources={"cpu": "0.5", "mem": "128m"})
        place(session, agent)
        with django_assert_num_queries(5):  # 2 for who asks, session, history, kernels
            info_of(client, session)


@some(
    ("name", "words"),
    [
        ("ab", "at least 4 characters"),
        ("x" * 65, "at most 64 characters"),
        ("a b c d", "A space is not allowed"),
        ("<script>", "&#x27;&lt;&#x27; is not allowed"),
        ("-abc", "Begin with a letter"),
        ("abc-", "End with a letter"),
        ("", "This field is required"),
    ],
    2,
)
def test_each_mistake_in_a_name_has_its_own_words(cast: Cast, browse: Browse, name: str, words: str) -> None:
    session = make_session(cast.alice, name="keeps-this")
    answer = browse(cast.alice).post(reverse("web:session_rename", args=[session.pk]), {"name": name}, **HTMX)
    page = markup(answer)
    assert words in page and 'aria-invalid="true"' in page
    session.refresh_from_db()
    assert session.name == "keeps-this"


def test_its_owner_renames_it_from_the_box_or_from_the_page(cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice, name="first-name"), browse(cast.alice)
    address = reverse("web:session_rename", args=[session.pk])
    assert 'value="first-name"' in markup(client.get(address))
    assert client.post(address, {"name": "second-name"}, **HTMX).status_code == 204
    answer = client.post(address, {"name": "third-name"})
    assert answer["Location"] == reverse("web:session", args=[session.pk])
    session.refresh_from_db()
    assert session.name == "third-name"


def test_a_taken_name_shows_the_other_session(cast: Cast, browse: Browse) -> None:
    session, other = make_running_session(cast.alice, name="one-run"), make_session(cast.alice, name="other-run")
    address = reverse("web:session_rename", args=[session.pk])
    page = markup(browse(cast.alice).post(address, {"name": "other-run"}, **HTMX))
    assert "(pending, launched" in page
    assert f'href="{reverse("web:session", args=[other.pk])}"' in page


def test_it_is_not_renamed_while_a_node_makes_it_nor_after_its_end(cast: Cast, browse: Browse) -> None:
    agent, session, client = make_agent(), make_session(cast.alice, name="on-its-way"), browse(cast.alice)
    page, rename = (reverse(f"web:{name}", args=[session.pk]) for name in ("session", "session_rename"))
    assert 'id="rename-button"' in markup(client.get(page))
    place(session, agent)
    kernel_reported(agent, report_of(session.kernels.get(), KernelState.CREATING))
    assert 'id="rename-button"' not in markup(client.get(page))
    assert "is being prepared" in markup(client.post(rename, {"name": "too-early"}, **HTMX))
    ComputeSession.objects.update(status="TERMINATED")
    assert "has ended" in markup(client.post(rename, {"name": "too-late"}, **HTMX))
    session.refresh_from_db()
    assert session.name == "on-its-way"


def test_the_log_is_a_box_for_scripts_and_else_a_part_of_the_page(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice, cluster_size=2, name="talks")
    client, address = browse(cast.alice), reverse("web:session_log", args=[session.pk])
    box = markup(client.get(address, **HTMX))
    assert "<!DOCTYPE" not in box
    assert 'data-status="RUNNING"' in box
    assert [name in box for name in ("main1", "sub1", "talks")] == [True, True, True]
    assert client.get(address, {"kernel": "a b"})["Location"] == f"/sessions/{session.pk}/?kernel=a+b#log"


@pytest.mark.parametrize("address", ["session", "session_panel", "session_info", "sessions"])
def test_no_page_has_the_value_of_a_variable_until_its_owner_asks(cast: Cast, browse: Browse, address: str) -> None:
    environ = {"HF_TOKEN": "hf_4711", "GREETING": "<b>good day</b>"}
    session = make_running_session(cast.alice, environ=environ)
    args = [] if address == "sessions" else [session.pk]
    page = markup(browse(cast.alice).get(reverse(f"web:{address}", args=args)))
    assert "hf_4711" not in page and "good day" not in page
    assert ("HF_TOKEN" in page) is (address in ("session", "session_panel"))
    assert (reverse("web:session_variables", args=[session.pk]) in page) is (address in ("session", "session_panel"))


def test_the_values_of_variables_are_for_the_owner_alone(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice, environ={"HF_TOKEN": "hf_4711", "GREETING": "<b>good day</b>"})
    address = reverse("web:session_variables", args=[session.pk])
    for headers in ({}, HTMX):
        answer = browse(cast.alice).get(address, **headers)
        page = markup(answer)
        assert "<bdi>hf_4711</bdi>" in page and "<bdi>&lt;b&gt;good day&lt;/b&gt;</bdi>" in page
        assert "no-store" in answer["Cache-Control"]
    page = markup(browse(cast.dana).get(address))
    assert "Only its owner sees them." in page
    assert "HF_TOKEN" not in page and "hf_4711" not in page
    assert browse(cast.charlie).get(address).status_code == 404
    assert "HF_TOKEN" not in markup(browse(cast.dana).get(reverse("web:session", args=[session.pk])))
