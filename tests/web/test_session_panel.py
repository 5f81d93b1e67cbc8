"""The panel of a session, over the list and on its page: its facts, its actions in their order, what ends it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel, KernelLog
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.spec import RoleSpec
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session, place, report_of
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HOSTILE = "<script>alert(1)</script>"


def text_of(client: Client, session: ComputeSession, name: str = "session", **headers: str) -> str:
    return markup(client.get(reverse(f"web:{name}", args=[session.pk]), **headers))


def obstacles(page: str) -> dict[str, bool]:
    """Which actions there are, in their order, and whether each cannot be pressed."""
    found = re.findall(r'id="(apps|terminal|ssh|log|terminate)-button" (aria-disabled|href)', page)
    return {key: how == "aria-disabled" for key, how in found}


def test_over_the_list_it_comes_alone_and_on_its_page_with_terminal_and_log(cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice), browse(cast.alice)
    page, drawn = text_of(client, session), text_of(client, session, **HTMX)
    renewed = markup(client.get(reverse("web:session_panel", args=[session.pk]), {"in": "drawer"}, **HTMX))
    assert '<h1 id="session-name">' in page and 'id="terminal-box"' in page
    for part in (drawn, renewed):
        assert "<!DOCTYPE" not in part and 'id="terminal-box"' not in part
        assert '<h2 class="h1" id="session-name">' in part
    assert 'target="_blank"' in drawn, "the terminal opens beside the list"
    for part in (page, drawn):
        assert f'data-panel-of="{session.pk}"' in part


def test_it_says_that_a_session_reaches_no_other_machine(cast: Cast, browse: Browse) -> None:
    there, isolated = (
        make_agent(name, backend="vm", capabilities=list(can)) for name, can in (("a", ()), ("b", ("isolated",)))
    )
    said = "programs in this session reach no other machine"
    assert said not in text_of(browse(cast.alice), make_running_session(cast.alice, there))
    page = text_of(browse(cast.alice), make_running_session(cast.alice, isolated))
    assert said in page and "what-differs-between-agents" in page


def test_it_shows_the_amounts_of_roles_the_template_the_timeout_and_how_others_must_end(
    cast: Cast, browse: Browse
) -> None:
    make_image("worker")
    other = make_session(cast.alice, session_type="batch", startup_command="true", name="other")
    session = make_session(
        cast.alice,
        session_type="batch",
        startup_command="true",
        resources={"cpu": 1, "mem": "128m"},
        roles={
            "worker": RoleSpec(count=2, image="worker", resources={"cpu": 2, "mem": "64m"}, startup_command="serve <1>")
        },
        batch_timeout=timedelta(minutes=90),
        depends_on=["other"],
        depends_when="failure",
        template="public/train@2",
    )
    page = text_of(browse(cast.alice), session).replace("\xa0", " ")
    assert "<dd>5 CPU · 256 MiB <span" in page and "in each of" not in page
    assert "public/train@2" in page and "<dt>Timeout</dt><dd>1h 30m</dd>" in page
    assert "<dt>Startup command of worker</dt>" in page and "serve &lt;1&gt;" in page
    assert other.name in page and "all ended without success" in page


def test_it_has_every_fact(cast: Cast, browse: Browse) -> None:
    make_image(title=HOSTILE, architecture="x86_64")
    session = make_running_session(cast.alice, cluster_size=2, resources={"cpu": 1, "mem": "128m"})
    ComputeSession.objects.filter(pk=session.pk).update(created_at=session.started_at - timedelta(seconds=2))
    page = text_of(browse(cast.alice), session)
    assert HOSTILE not in page and "&lt;script&gt;" in page
    for name in (
        "Session ID", "User", "Type", "Image", "Mounted folders", "Resource allocation", "Allocated",
        "Elapsed time", "Agent", "Cluster mode", "Idle checks", "Resource usage",
    ):  # fmt: skip
        assert f"<dt>{name}</dt>" in page
    assert "in each of 2 kernels, together 2 CPU · 256 MiB" in page
    assert '<span class="code-chip">x86_64</span>' in page
    assert 'data-copy="local/python:latest"' in page
    assert "Nothing is mounted." in page and "No idle checker applies" in page
    assert f'since <time datetime="{session.scheduled_at.isoformat()}" data-exact' in page
    assert page.count("data-elapsed=") == 1 and "waited 2 s" in page, "one clock, and how long it waited"
    assert page.index(">main1<") < page.index(">sub1<")
    for kernel in session.kernels.all():
        assert f'id="log-of-{kernel.pk}"' in page
    assert "granted-other" not in page


def test_its_actions_have_one_order_and_say_why_they_cannot_be_pressed(cast: Cast, browse: Browse) -> None:
    make_image(labels={"ai.backend.service-ports": "notes:http:8080"})
    client, session = browse(cast.alice), make_session(cast.alice)
    page = text_of(client, session, **HTMX)
    assert list(obstacles(page)) == ["apps", "terminal", "ssh", "log", "terminate"]
    assert obstacles(page) == {"apps": True, "terminal": True, "ssh": True, "log": True, "terminate": False}
    assert list(obstacles(text_of(client, session))) == ["apps", "ssh", "terminate"], "its page has tabs for the others"
    assert 'title="The session does not run yet."' in page
    running = make_running_session(cast.alice)
    assert set(obstacles(text_of(client, running, **HTMX)).values()) == {False}
    Image.objects.update(labels={})
    page = text_of(client, running)
    assert obstacles(page)["apps"] and "The image has no apps" in page
    terminate_session(session, cast.alice)
    page = text_of(client, session, **HTMX)
    assert obstacles(page) == {}, "what cannot come back is not shown"
    assert "It never ran, so it had no home folder." in page and "Launch again" in page


def test_a_session_whose_start_failed_offers_its_log_only_when_there_is_one(cast: Cast, browse: Browse) -> None:
    agent, client = make_agent(), browse(cast.alice)
    silent, said = make_session(cast.alice), make_session(cast.alice)
    for session in (silent, said):
        place(session, agent)
        refused = report_of(session.kernels.get(), KernelState.TERMINATED, reason="image-not-found", message="No.")
        kernel_reported(agent, refused)
    KernelLog.objects.create(kernel=said.kernels.get(), content=b"", size=12)
    assert obstacles(text_of(client, silent, **HTMX)) == {}
    assert obstacles(text_of(client, said, **HTMX)) == {"log": False}


def test_ending_what_is_still_prepared_does_not_warn_of_a_loss(cast: Cast, browse: Browse) -> None:
    agent, session, client = make_agent(), make_session(cast.alice), browse(cast.alice)
    place(session, agent)
    page = markup(client.get(reverse("web:terminate", args=[session.pk])))
    assert "nothing runs in it yet" in page and "will be deleted" not in page
    assert 'name="force"' in page, "it can be ended even when its node does not answer"
    running = make_running_session(cast.alice, agent)
    page = markup(client.get(reverse("web:terminate", args=[running.pk])))
    assert "will be deleted" in page and "nothing runs in it yet" not in page


def test_it_tells_an_administrator_whose_session_it_is(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    assert "foreign-notice" not in text_of(browse(cast.alice), session)
    page = text_of(browse(cast.dana), session)
    assert "This session belongs to <strong><bdi>alice@example.com</bdi></strong>" in page
    assert 'id="rename-button"' not in page


def test_it_warns_within_the_hour_before_its_end_and_says_what_ends_it(cast: Cast, browse: Browse) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="short", max_session_lifetime=timedelta(hours=3))
    cast.alice.save()
    agent, client = make_agent(), browse(cast.alice)
    session = make_running_session(cast.alice, agent)
    assert "ends-soon" not in text_of(client, session)
    ComputeSession.objects.update(ends_at=timezone.now() + timedelta(minutes=20))
    assert "ends-soon" in text_of(client, session)
    now = timezone.now()
    Agent.objects.update(drain_started_at=now, drain_ends_at=now + timedelta(minutes=5))
    page = text_of(client, session)
    assert page.index("Its agent is drained") < page.index("Maximum lifetime")
    assert 'id="ends-soon"' not in page and page.count("is being drained</strong>") == 1, "one notice says it"
    job = make_running_session(
        cast.alice, agent, session_type="batch", startup_command="true", batch_timeout=timedelta(hours=1)
    )
    assert "<strong>Batch timeout</strong> ends the session" in text_of(client, job)


def test_it_warns_when_it_was_granted_something_else_than_it_asked_for(cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    Allocation.objects.filter(slot="cpu").update(amount=500)
    page = text_of(browse(cast.alice), session)
    assert "Allocated 0.5 CPU · 512 MiB" in page


def test_it_shows_what_is_measured_of_its_kernels_and_nothing_else(cast: Cast, browse: Browse) -> None:
    session, other = make_running_session(cast.alice), make_running_session(cast.bob)
    client = browse(cast.alice)
    assert "No measurement yet" in text_of(client, session)
    mine, foreign = (one.kernels.get() for one in (session, other))
    use = {"util_pct": 42.5, "mem_used": 2**30}
    sample = {"model": "H200", "mem_total": 2**37, "kernels": {str(mine.pk): use, str(foreign.pk): {"util_pct": 99.0}}}
    Agent.objects.filter(pk=mine.agent_id).update(live={"at": timezone.now().isoformat(), "devices": {"GPU-1": sample}})
    page = text_of(client, session)
    assert "H200 GPU-1" in page and "42.5 %" in page
    assert "1 GiB of 128 GiB" in page
    assert "99.0" not in page


def test_after_the_end_it_says_how_long_it_ran_and_what_is_kept(cast: Cast, browse: Browse) -> None:
    agent, client = make_agent(), browse(cast.alice)
    session = make_running_session(cast.alice, agent)
    kernel = session.kernels.get()
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=137, reason="exited"))
    page = text_of(client, session)
    assert "The session ran for <time" in page and "The program printed nothing." in page
    KernelLog.objects.create(kernel=kernel, content=b"", size=4096)
    assert "</a> (4 KiB) and the <a" in text_of(client, session)
    assert f'href="/sessions/new/?like={session.pk}"' in page


def test_a_program_that_failed_is_shown_with_the_last_lines_of_its_log(cast: Cast, browse: Browse) -> None:
    agent, client = make_agent(), browse(cast.alice)
    session = make_running_session(cast.alice, agent, session_type="batch", startup_command="train")
    kernel = session.kernels.get()
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=1))
    page = text_of(client, session)
    assert "The program printed nothing." in page
    assert "The log of the main kernel says why" not in page and 'id="last-lines"' not in page
    KernelLog.objects.create(kernel=kernel, content=gzip.compress(b"<b>loss is nan\n"), size=15)
    assert "<code>&lt;b&gt;loss is nan</code>" in text_of(client, session)


def test_it_asks_the_database_as_often_whatever_its_status(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    agent, client = make_agent(cpu=16), browse(cast.alice)
    starting = make_session(cast.alice, cluster_size=4, resources={"cpu": 1, "mem": "128m"})
    place(starting, agent)
    ended = make_running_session(cast.alice, agent)
    kernel_reported(agent, report_of(ended.kernels.get(), KernelState.TERMINATED, reason="exited"))
    for session, number in ((make_session(cast.alice), 10), (starting, 12), (ended, 11)):
        for headers in ({}, HTMX):
            # 2 for who asks, session, kernels, its order among others (2), slot types; what it holds; usual times;
            # logs, and 3 for what it used, or 2 for idle checkers
            with django_assert_num_queries(number):
                client.get(reverse("web:session", args=[session.pk]), **headers)
        assert Kernel.objects.filter(session=session).exists()


def test_it_ends_from_its_box_and_says_there_when_it_cannot(cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice), browse(cast.alice)
    address = reverse("web:terminate", args=[session.pk])
    box = markup(client.get(address, **HTMX))
    assert "<!DOCTYPE" not in box and "will be deleted" in box and 'name="force"' in box
    assert client.post(address, **HTMX).status_code == 204
    session.refresh_from_db()
    assert session.status == "TERMINATING"
    agent, kernel = Agent.objects.get(), session.kernels.get()
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED))
    again = client.post(address, **HTMX)
    assert "already ended" in markup(again) and 'role="alert"' in markup(again)


def test_its_apps_are_a_box_and_a_page(cast: Cast, browse: Browse) -> None:
    make_image(labels={"ai.backend.service-ports": "notes:http:8080"})
    session, client = make_running_session(cast.alice), browse(cast.alice)
    page, box = text_of(client, session, "app_launcher"), text_of(client, session, "app_launcher", **HTMX)
    for part in (page, box):
        assert ">notes<" in part and "BACKENDAI_APPS_DOMAIN" in part, "this browser would not find them"
    assert ("<!DOCTYPE" in page, "<!DOCTYPE" in box) == (True, False)
