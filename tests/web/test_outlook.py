"""What would start a waiting session now, and what would become of the launch form as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import start_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, ImageOnAgent, ImagePull
from backendai.domain.catalog.pulls import PULL_JOB
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.native_sessions import allow_native_sessions
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.draining import start_drain
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.planning import turns
from backendai.portal.loops.group_pass import schedule
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
_BATCH = {"session_type": "batch", "startup_command": "true"}
Browse = Callable[[User], Client]
HALF = {"cpu": 2, "mem": "512m"}


@pytest.fixture
def busy(cast: Cast) -> ComputeSession:
    """Alice's session of 2 cores waits on an agent of which Bob leaves 1."""
    make_running_session(cast.bob, make_agent("node-1", cpu=4), name="bobs-run", resources={"cpu": 3, "mem": "512m"})
    return waiting(cast.alice, name="mine", resources=HALF)


def waiting(owner: User, **over: Any) -> ComputeSession:
    session = make_session(owner, **over)
    schedule(session.resource_group, timezone.now())
    session.refresh_from_db()
    return session


def part(client: Client, session: ComputeSession) -> str:
    answer = client.get(reverse("web:outlook", args=[session.pk]), **HTMX)
    assert answer.status_code == 200
    return " ".join(unescape(markup(answer)).split())


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {
        "image": "python",
        "session_type": "interactive",
        "project": str(cast.project.pk),
        "resource_group": "default",
        "preset": "",
        "cpu": "2",
        "mem": "512m",
    }
    return values | over


def make_agent_with_image(name: str, *, digest: str = "") -> Agent:
    agent = make_agent(name, cpu=4)
    ImageOnAgent.objects.create(agent=agent, reference=make_image().reference, digest=digest)
    return agent


def foreseen(client: Client, values: dict[str, Any]) -> str:
    answer = client.post(reverse("web:launch_preview"), values, **HTMX)
    assert answer.status_code == 200
    shown = re.sub(r"<template.*?</template>", "", markup(answer), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def test_of_several_sessions_it_counts_those_that_start(cast: Cast, browse: Browse) -> None:
    make_agent_with_image("node-1")
    client = browse(cast.alice)
    assert foreseen(client, typed(cast, count="2")) == "All 2 start now on node-1."
    said = foreseen(client, typed(cast, count="3"))
    assert said.startswith("2 of 3 start now. The next one waits:"), said
    assert "Use these amounts" not in said
    assert foreseen(client, typed(cast, count="3", cluster_size="2")).startswith("Starts now")


def test_of_an_array_it_counts_the_elements_that_start(cast: Cast, browse: Browse) -> None:
    make_agent_with_image("node-1")
    client, array = browse(cast.alice), typed(cast, **_BATCH)
    line = foreseen(client, array | {"array_size": "3"})
    assert line.startswith("2 of 3 start now. The next one waits:")
    assert "it starts now" not in line, "of one element it would be true, of the array it is not"
    assert foreseen(client, array | {"array_size": "2"}) == "All 2 start now on node-1."
    Agent.objects.update(capacity={"cpu": "64", "mem": str(64 * 2**30)})
    small = array | {"cpu": "1", "mem": "64m", "array_size": "100"}
    assert foreseen(client, small) == "The first 64 start now on node-1."


def test_a_session_that_waits_for_another_is_not_told_to_wait_for_resources(cast: Cast, browse: Browse) -> None:
    first = make_running_session(cast.alice, make_agent(cpu=4), name="first", **_BATCH)
    text = part(browse(cast.alice), waiting(cast.alice, depends_on=[str(first.pk)], **_BATCH))
    assert "<strong>Not yet.</strong> Until the sessions that it waits for have ended, other amounts do not" in text
    assert "resources are free" not in text


def test_what_ends_the_wait_follows_from_its_reason(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    client, now = browse(cast.alice), timezone.now()
    assert "<strong>Not yet.</strong> The session starts as soon as resources are free." in part(client, busy)
    changes: dict[str, dict[str, Any]] = {
        "until an administrator cancels the drain.": {"status": Agent.Status.DRAINING, "drain_started_at": now},
        "until an administrator resumes it.": {"schedulable": False},
        "starts when the fault of an agent is repaired.": {"fault": "The engine does not answer."},
        "starts when an agent is reachable again.": {"status": Agent.Status.LOST, "lost_at": now},
    }
    known = Agent.objects.values().get()
    for said, change in changes.items():
        Agent.objects.update(**{name: known[name] for name in ("status", "drain_started_at", "schedulable", "fault")})
        Agent.objects.update(**change)
        text = part(client, busy)
        assert said in text and "as soon as resources are free" not in text, said


def test_the_page_asks_for_the_outlook_of_a_session_that_waits_and_of_no_other(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    client = browse(cast.alice)
    page = markup(client.get(reverse("web:session", args=[busy.pk])))
    assert 'hx-trigger="load, look-again"' in page
    assert f'<a href="{reverse("web:outlook", args=[busy.pk])}">' in page
    assert f'data-wait="insufficient-resources 1 {busy.reason_text}"' in page
    terminate_session(busy, cast.alice)
    page = markup(client.get(reverse("web:session", args=[busy.pk])))
    assert 'hx-trigger="look-again"' in page
    assert "data-wait" not in page
    assert part(client, busy) == ""


def test_the_holders_of_the_room_are_named_if_they_are_mine_and_counted_if_not(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    client = browse(cast.alice)
    assert "1</span> session of others holds resources there. No end is known." in part(client, busy)
    own = make_running_session(cast.alice, Agent.objects.get(), name="left-open", resources={"cpu": 0.5, "mem": "1g"})
    ComputeSession.objects.filter(pk=own.pk).update(ends_at=timezone.now() + timedelta(hours=2))
    text = part(client, busy)
    assert "You hold resources of this group in 1 session:" in text and "left-open" in text and "bobs-run" not in text
    assert f'href="{reverse("web:terminate", args=[own.pk])}" data-box="terminate"' in text
    assert "Earliest known end:" in text
    ComputeSession.objects.filter(pk=busy.pk).update(starts_at=timezone.now() + timedelta(hours=1))
    assert "You hold resources" not in part(client, busy), "it does not wait for them"


def test_a_suggestion_opens_the_form_with_the_changed_amounts(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    client = browse(cast.alice)
    text = part(client, busy)
    assert "<strong>Not yet.</strong>" in text
    assert "With 1 CPU core instead of 2 it starts now on node-1." in text
    link = re.search(r'href="(/sessions/new/[^"]+)"', text)
    assert link
    form = client.get(link[1]).context["form"]
    shown = {name: form[name].value() for name in ("image", "cpu", "preset", "resource_group")}
    assert shown == {"image": "python", "cpu": "1", "preset": "", "resource_group": "default"}
    assert form.typed("mem") == "512m"


def test_an_element_of_a_run_is_not_replaced_by_a_session_of_its_own(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    assert "Launch it with less" in part(browse(cast.alice), busy)
    ComputeSession.objects.filter(pk=busy.pk).update(run_id=uuid4())
    assert "Launch it with less" not in part(browse(cast.alice), busy)


def test_a_suggestion_of_another_group_opens_the_form_in_that_group(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    make_agent("node-2", group=make_group("lab"))
    client = browse(cast.alice)
    link = re.search(r'href="(/sessions/new/[^"]+resource_group=lab[^"]*)"', part(client, busy))
    assert link
    form = client.get(link[1]).context["form"]
    assert (form["resource_group"].value(), form["cpu"].value(), form.typed("mem")) == ("lab", "2", "512m")


def test_somebody_elses_session_is_explained_to_an_administrator_without_a_form(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    text = part(browse(cast.dana), busy)
    assert "With 1 CPU core instead of 2" in text
    assert "/sessions/new/" not in text


def test_never_is_told_in_words(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    agent = busy.resource_group.agents.get()
    agent.capacity = {"cpu": "1", "mem": agent.capacity["mem"]}
    agent.save()
    schedule(busy.resource_group, timezone.now())
    text = part(browse(cast.alice), busy)
    assert "Cannot start." in text
    assert "Not yet" not in text


def test_those_ahead_are_counted_and_only_named_to_whom_they_are_visible(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent("node-1", cpu=4), name="alices-run", resources=HALF)
    all_of_it = {"cpu": 4, "mem": "512m"}
    for name in ("alices-first", "alices-second"):
        waiting(cast.alice, name=name, resources=all_of_it)
    first = waiting(cast.bob, name="bobs-first", resources=all_of_it)
    session = waiting(cast.bob, name="bobs-second", resources=all_of_it)
    text = part(browse(cast.bob), session)
    assert f'href="{reverse("web:session", args=[first.pk])}"><bdi>bobs-first</bdi></a>' in text
    assert re.search(r'and <span class="number">2</span> others', text)
    whole = markup(browse(cast.bob).get(reverse("web:outlook", args=[session.pk])))
    line = foreseen(browse(cast.bob), typed(cast, cpu="4"))
    assert "4 sessions ahead." in line
    for seen in (text, whole, line):
        assert "alices-" not in seen
    assert "alices-first" in part(browse(cast.dana), session)
    assert '<span class="number">2</span> sessions of others.' in part(browse(cast.bob), first)


def test_the_steps_are_there_to_be_unfolded(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    text = part(browse(cast.alice), busy)
    assert '<details class="sub-steps" id="outlook-steps" data-keep>' in text
    assert "1 of 1 agents ruled out." in text
    assert '<span class="code-chip mono">insufficient-resources</span>' in text


def test_it_is_a_page_of_its_own_without_scripts(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    page = markup(browse(cast.alice).get(reverse("web:outlook", args=[busy.pk])))
    assert "<!DOCTYPE html>" in page
    assert "With 1 CPU core instead of 2 it starts now on node-1." in page
    terminate_session(busy, cast.alice)
    assert "is no longer pending" in markup(browse(cast.alice).get(reverse("web:outlook", args=[busy.pk])))


def test_rules_that_cannot_be_followed_are_said_instead_of_foreseen(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    ResourceGroup.objects.update(sequence="nothing-like-it")
    assert "Not yet." in part(browse(cast.alice), busy)  # before a pass has said so
    schedule(ResourceGroup.objects.get(), timezone.now())
    client = browse(cast.alice)
    assert "Not yet." in part(client, busy)
    page = markup(client.get(reverse("web:session", args=[busy.pk])))
    assert "Waiting for an administrator" in page
    assert "contact an administrator or choose another resource group" in page
    assert foreseen(client, typed(cast)).startswith(
        "Waits: The rules of default cannot be applied: no sequence is called 'nothing-like-it'"
    )


def test_what_no_pass_can_decide_is_never_as_things_stand(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    broken = Waiting(busy.pk, "scheduler-error", "Error 1234 is in the log.", {"never": True}, skipped=True)
    note_waits([broken], now=timezone.now())
    client = browse(cast.alice)
    assert "Cannot start." in part(client, busy)
    assert "Give the error number to an administrator" in markup(client.get(reverse("web:session", args=[busy.pk])))


def test_the_number_of_queries_does_not_grow_with_the_queue(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    client = browse(cast.alice)

    def queries() -> tuple[int, int]:
        with CaptureQueriesContext(
            connection,
        ) as outlook:
            part(client, busy)
        with CaptureQueriesContext(connection) as line:
            foreseen(client, typed(cast))
        return len(outlook), len(line)

    make_session(cast.bob, resources=HALF, priority=20)
    make_session(cast.alice, resources=HALF, priority=20)
    before = queries()
    for _ in range(4):
        make_agent(cpu=1)
        make_session(cast.bob, resources=HALF, priority=20)
        make_session(cast.alice, resources=HALF, priority=20)
    assert queries() == before
    assert max(before) < 40


def test_the_form_says_where_it_would_start(cast: Cast, browse: Browse) -> None:
    make_agent_with_image("gpu-02")
    assert foreseen(browse(cast.alice), typed(cast)) == "Starts now on gpu-02."
    assert not ComputeSession.objects.exists()


def test_an_image_that_the_agent_pulls_first_is_no_start_at_once(cast: Cast, browse: Browse) -> None:
    agent = make_agent_with_image("gpu-02", digest="sha256:old")
    Image.objects.update(digest="sha256:new")
    client, waits = browse(cast.alice), "Starts once the image is pulled to gpu-02."
    assert foreseen(client, typed(cast)) == waits
    assert foreseen(client, typed(cast, count="2")) == "All 2 start once the image is pulled to gpu-02."
    job = start_job(PULL_JOB, "python", Message("Pulling."), now=timezone.now())
    ImagePull.objects.create(job=job, image=make_image(), agent=agent, status="PULLING", progress=0.4)
    assert foreseen(client, typed(cast)) == f"{waits} 40 % of it is there."
    ImageOnAgent.objects.update(digest="sha256:new")
    assert foreseen(client, typed(cast)) == "Starts now on gpu-02."


def test_a_native_start_says_that_its_image_is_still_being_built(cast: Cast, browse: Browse) -> None:
    make_agent("native-1", backend="process")
    make_image(is_built_here=True, process_reference="local/python:process")
    allow_native_sessions(cast.dana, now=timezone.now())
    job = start_job(BUILD_JOB, "local/python:latest", Message("Building."), now=timezone.now())
    BackgroundJob.objects.filter(pk=job.pk).update(progress=0.4)
    line = foreseen(browse(cast.alice), typed(cast))
    native = "It runs as a native process:"
    assert line == f"Starts now on native-1. {native} its image is still being built ( 40 % )."
    BackgroundJob.objects.filter(pk=job.pk).update(status=BackgroundJob.Status.FAILED)
    assert foreseen(browse(cast.alice), typed(cast)).endswith(f"{native} its image could not be built.")


def test_the_form_says_why_it_would_wait_and_what_would_help(cast: Cast, browse: Browse, busy: ComputeSession) -> None:
    client = browse(cast.alice)
    line = foreseen(client, typed(cast, name="another"))
    assert "Queued behind a session that does not fit yet (group default runs sessions strictly in order)." in line
    assert line.endswith("1 session ahead.")  # in a strict queue no smaller one would pass it
    terminate_session(busy, cast.alice)
    answer = client.post(reverse("web:launch_preview"), typed(cast, name="another"), **HTMX)
    fill = re.search(r'data-fill="([^"]+)"', markup(answer))
    assert fill
    assert json.loads(unescape(fill[1])) == {"preset": "", "cpu": "1", "mem": "512", "mem_unit": "m"}


def test_the_form_says_what_can_never_start(cast: Cast, browse: Browse) -> None:
    make_agent(cpu=4)
    make_image()
    line = foreseen(browse(cast.alice), typed(cast, cpu="64"))
    assert line == "Cannot be launched: CPU cores: 64 CPU cores requested, but no agent of default has more than 4."


@some(
    ("change", "field", "text"),
    [
        ({"session_type": "batch"}, "startup_command", "A batch session needs a command to run."),
        ({"name": "mine"}, "name", "You already have a session named 'mine'"),
        ({"name": "mine", "cpu": "many"}, "name", "You already have a session named 'mine'"),
        ({"count": "17"}, "count", "At most 16 sessions at once."),
        (
            {"session_type": "batch", "startup_command": "true", "batch_timeout": "-3h"},
            "batch_timeout",
            "longer than 0",
        ),
    ],
    2,
)
def test_the_line_the_review_and_the_launch_refuse_the_same(
    cast: Cast, browse: Browse, change: dict[str, str], field: str, text: str
) -> None:
    make_agent("node-1")
    make_image()
    make_session(cast.alice, name="mine")
    client, values = browse(cast.alice), typed(cast, **{"name": "other"} | change)
    line = foreseen(client, values)
    assert line.startswith("Cannot be launched: ") and text in line
    previewed = markup(client.post(reverse("web:launch_preview"), values, **HTMX))
    reviewed = markup(client.post(reverse("web:launch_review"), values, **HTMX))
    faults = [re.findall(r'data-fault="([^"]+)">', page) for page in (previewed, reviewed)]
    assert faults[0] == faults[1] and field in faults[0]
    answer = client.post(reverse("web:launch"), values)
    assert answer.status_code == 422 and field in answer.context["form"].errors
    assert ComputeSession.objects.count() == 1


def test_what_is_only_missing_is_told_apart_from_what_is_wrong(cast: Cast, browse: Browse) -> None:
    make_agent("node-1", cpu=4)
    make_image()
    client, batch = browse(cast.alice), typed(cast, session_type="batch")

    def page(values: dict[str, Any]) -> str:
        return markup(client.post(reverse("web:launch_preview"), values, **HTMX))

    needed = page(batch)
    assert re.search(r'id="still-needed">.*<a href="#step-1" data-go="1" data-to="startup_command">', needed, re.DOTALL)
    assert '<p class="outlook-line tone-bad" hidden>' in needed
    wrong = batch | {"batch_timeout": "5"}
    assert 'id="still-needed"' not in page(wrong)
    assert foreseen(client, wrong).startswith("Cannot be launched: Timeout: ")
    assert 'id="still-needed"' not in page(typed(cast, name="-a"))


def test_a_start_that_lies_ahead_is_told_by_the_readers_clock(cast: Cast, browse: Browse) -> None:
    make_agent("node-1")
    make_image()
    asked = typed(
        cast, session_type="batch", startup_command="true", starts_at="2999-01-31T08:30", time_zone="Asia/Seoul"
    )
    page = markup(browse(cast.alice).post(reverse("web:launch_preview"), asked, **HTMX))
    assert "Starts at <time" in page and "2999-01-31T08:30:00+09:00" in page


def test_the_end_of_a_drain_is_told_by_the_readers_clock(cast: Cast, browse: Browse) -> None:
    agent, now = make_agent_with_image("node-1"), timezone.now()
    start_drain(cast.dana, agent, now=now, ends_at=now + timedelta(hours=2))
    client = browse(cast.alice)
    line = markup(client.post(reverse("web:launch_preview"), typed(cast), **HTMX))
    session = waiting(cast.alice, resources=HALF)
    opening = markup(client.get(reverse("web:session", args=[session.pk])))
    for shown in (line, opening):
        assert "is being drained" in shown
        assert (
            f'those on it end by <time datetime="{now + timedelta(hours=2):%Y-%m-%dT%H:%M}:00+00:00" data-exact'
            in shown
        )


@some(
    ("change", "text"),
    [
        ({"cpu": "many"}, "CPU cores: 'many' is not a number."),
        ({"mem": "4x"}, "Memory: '4x'"),
        ({"mem": "1k"}, "of memory requested"),
        ({"mem": "64"}, "Memory: 64 without a unit means bytes. Write 64g or 64m."),
        ({"shm": "64"}, "Shared memory: 64 without a unit means bytes."),
        ({"image": "unheard-of"}, "Image: Select a valid choice."),
        ({"name": "-a"}, "Name: "),
        ({"cluster_size": "99"}, "Kernels: "),
        ({"project": ""}, "Project: This field is required."),
        ({"priority": "101"}, "Priority: "),
        (
            {"session_type": "batch", "startup_command": "true", "batch_timeout": "5"},
            "Timeout: Write a number with its unit",
        ),
        (_BATCH | {"starts_at": "2001-01-01T10:00"}, "The start time is in the past."),
    ],
)
def test_the_form_says_what_is_wrong_while_one_types(
    cast: Cast, browse: Browse, change: dict[str, str], text: str
) -> None:
    make_agent()
    make_image()
    line = foreseen(browse(cast.alice), typed(cast, **change))
    assert line.startswith("Cannot be launched: ")
    assert text in line
    assert not ComputeSession.objects.exists()


def test_the_form_says_at_once_that_a_group_takes_no_such_sessions(cast: Cast, browse: Browse) -> None:
    make_agent()
    make_image()
    ResourceGroup.objects.update(allowed_session_types=["batch"])
    line = foreseen(browse(cast.alice), typed(cast))
    assert line == "Cannot be launched: Type: Resource group default takes no interactive sessions; it takes: batch."


def test_a_suggestion_that_is_taken_starts_in_place_of_the_session_that_waits(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    client = browse(cast.alice)
    less = typed(cast, cpu="1", replaces=str(busy.pk))
    assert foreseen(client, less) == "Starts now on node-1, in place of mine ."
    assert "1 session ahead, mine counted in." in foreseen(client, less | {"mem": "256m"})
    assert "in place of" not in foreseen(client, typed(cast, cpu="1"))


def test_a_session_that_is_nobodys_business_cannot_be_replaced(
    cast: Cast, browse: Browse, busy: ComputeSession
) -> None:
    for person in (cast.bob, cast.dana):
        make_image()
        line = foreseen(browse(person), typed(cast, cpu="1", replaces=str(busy.pk)))
        assert line.startswith("Cannot be launched: ")
        assert "mine" not in line


def test_who_asks_too_often_at_once_gets_no_wrong_answer(
    cast: Cast, browse: Browse, busy: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(turns._waiting, cast.alice.pk, 1)
    client = browse(cast.alice)
    assert foreseen(client, typed(cast, name="another")).startswith("Not known yet. Two of your requests")
    assert "What would start it now" in part(client, busy)
