"""The administration pages of agents, join tokens and resource groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape
from pytest_django import DjangoAssertNumQueries

from backendai.base.wire.messages import ImageSighting, JoinUp
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import record_images
from backendai.domain.cluster.groups.rules import strategies
from backendai.domain.cluster.joining import join_agent
from backendai.domain.cluster.models import Agent, JoinToken, ResourceGroup
from backendai.domain.cluster.services import agent_of_token
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.portal.loops.loops import schedule_group
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup, sent
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def text_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup(answer)).split())


def page(agent: Agent, name: str = "agent") -> str:
    return reverse(f"manage:{name}", args=[agent.pk])


def test_the_list_shows_load_and_state_in_as_many_queries_for_many_machines(
    cast: Cast, dana: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    note = {"code": "old", "message": "runc is old.", "fix": "Boot with <fix>."}
    live = {"cpu_pct": 42.4, "mem_used": 6, "mem_total": 8, "disk_free": 2**30, "disk_total": 2**35}
    facts = {"engine": "Docker 20.10.24", "os_kernel": "6.1.0-18", "low_disk": True}
    agent = make_agent("node-1", notes=[note], live=live, **facts)
    make_running_session(cast.alice, agent, resources={"cpu": 1, "mem": "1g"})
    for lap in range(2):
        with django_assert_num_queries(7):  # two for who asks; groups to filter by, taken, count, rows, slot types
            shown = dana.get(reverse("manage:agents"))
        make_agent(f"more-{lap}", group=make_group(f"group-{lap}"))
    text = text_of(shown)
    assert "CPU 1 of 4" in text
    assert "Memory 1 GiB of 8 GiB" in text
    loads = re.findall(r'<meter [^>]*value="(\d+)" class="[a-z-]*" aria-label="(\w+): \1 %"', markup(shown))
    assert loads == [("42", "CPU"), ("75", "Memory"), ("97", "Disk")]
    assert "Docker 20.10.24" in text and "Linux 6.1.0-18" in text
    assert "1 note" in text
    assert "more-0" not in text_of(dana.get(f"{reverse('manage:agents')}?q=node", **HTMX))
    exported = b"".join(dana.get(f"{reverse('manage:agents')}?export=csv").streaming_content).decode()  # type: ignore[attr-defined]
    load = "CPU 42 %; Memory 75 %; Disk 97 %"
    assert f"node-1,default,ALIVE,yes,CPU 1 of 4; Memory 1 GiB of 8 GiB,{load},Docker 20.10.24,1," in exported
    old = dana.get(reverse("web:agents"))
    assert (old.status_code, old["Location"]) == (302, reverse("manage:agents"))
    with django_assert_num_queries(9):  # who asks, the machine, kernels, what they hold, slot types, agents, images
        one = dana.get(page(agent))
    assert "Boot with &lt;fix&gt;." in markup(one)
    assert "alice@example.com" in text_of(one)
    assert "1 GiB of 32 GiB (3 %), below its reserve" in text_of(one)
    assert "Docker 20.10.24 · Linux 6.1.0-18" in text_of(one)
    assert "more-0" not in text_of(dana.get(f"{reverse('manage:agents')}?low_disk=true", **HTMX))


def test_the_list_says_which_agent_cannot_start_sessions(cast: Cast, dana: Client) -> None:
    make_agent("broken", fault="Kernels cannot reach /srv.", notes=[{"code": "x", "message": "m", "fix": "f"}])
    make_agent("sound")
    assert text_of(dana.get(reverse("manage:agents"))).count("cannot start sessions") == 1


def test_devices_are_shown_with_their_sessions_and_those_that_fail_as_well(cast: Cast, dana: Client) -> None:
    agent = make_agent("gpus", devices={"cuda.shares": ["GPU-a", "GPU-b", "GPU-new"]})
    session = make_running_session(cast.alice, agent, name="training")
    session.kernels.update(devices={"cuda.shares": {"GPU-a": "0.25"}})
    kernel, stranger = str(session.kernels.get().pk), "00000000-0000-0000-0000-000000000000"
    base = {"slot": "cuda.shares", "model": "H200", "mem_used": 1, "mem_total": 4, "healthy": True, "numa": 1}
    users = {kernel: {"util_pct": 37.4}, stranger: {"util_pct": 50.0}}
    agent.live = {
        "devices": {
            "GPU-a": base | {"util_pct": 88.0, "kernels": users},
            "GPU-b": base | {"mock": True},
            "GPU-gone": base | {"healthy": False, "note": "it has <gone>"},
        }
    }
    agent.save()
    rows = [re.sub(r"<[^>]+>", " ", row) for row in markup(dana.get(page(agent))).split("<tr>")]
    told = {
        name: " ".join(row.split()) for name in ("GPU-a", "GPU-b", "GPU-new", "GPU-gone") for row in rows if name in row
    }
    assert told["GPU-a"].startswith(
        "H200 GPU-a · memory node 1 cuda.shares training 0.25 keeps it 37 % busy 88 % 25 % OK"
    )
    assert told["GPU-b"].startswith("H200 GPU-b · memory node 1 cuda.shares – – 25 % simulated")
    assert told["GPU-new"].startswith("– GPU-new cuda.shares – – – OK")
    assert told["GPU-gone"].startswith("H200 GPU-gone · memory node 1 cuda.shares – – 25 % failed it has &lt;gone&gt;")
    Agent.objects.update(status=Agent.Status.LOST)
    assert "88 %" not in text_of(dana.get(page(agent))), "what a silent machine said once is not how it is"


def test_a_machine_is_emptied_with_progress_and_used_again(cast: Cast, dana: Client) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    asked = dana.get(page(agent, "agent-drain"))
    assert "1 kernel now" in text_of(asked) and asked.context["submit_label"] == "Drain agent"
    wrong = dana.post(page(agent, "agent-drain"), {"within": "soon"})
    assert (wrong.status_code, "Write a number with its unit" in text_of(wrong)) == (422, True)
    assert dana.post(page(agent, "agent-drain"), {"within": "2h"}).status_code == 302
    agent.refresh_from_db()
    assert agent.drain_ends_at is not None
    assert abs(agent.drain_ends_at - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
    later = dana.get(page(agent, "agent-drain"))
    assert "Change the deadline of" in text_of(later) and later.context["submit_label"] == "Change the deadline"
    left = later.context["form"]["within"].value()
    assert left.startswith(("1h", "2h"))
    assert f'name="shown" value="{left}"' in markup(later)
    shown, deadline = {"within": left, "shown": left}, agent.drain_ends_at
    kept = dana.post(page(agent, "agent-drain"), shown, follow=True)
    agent.refresh_from_db()
    assert (agent.drain_ends_at, "The deadline is unchanged." in text_of(kept)) == (deadline, True)
    assert dana.post(page(agent, "agent-drain"), shown | {"within": ""}).status_code == 302
    agent.refresh_from_db()
    assert agent.drain_ends_at is None
    assert dana.get(page(agent, "agent-drain")).context["form"]["within"].value() is None
    assert "1 of 1 kernel left" in text_of(dana.get(page(agent), **HTMX))
    owner = Client()
    owner.force_login(cast.alice)
    notice = text_of(owner.get(reverse("web:session", args=[session.pk])))
    assert f"Agent {agent.name} is being drained" in notice
    session.kernels.update(status="TERMINATED")
    assert "Empty, safe to switch off" in text_of(dana.get(page(agent), **HTMX))
    assert dana.post(page(agent, "agent-cancel-drain")).status_code == 302
    again = dana.post(page(agent, "agent-cancel-drain"))
    assert (again.status_code, "is not being drained" in text_of(again)) == (422, True)


def test_a_drain_names_first_what_would_be_lost(cast: Cast, dana: Client) -> None:
    agent = make_agent()
    batch = {"session_type": "batch", "startup_command": "train"}
    make_running_session(cast.alice, agent)
    make_running_session(cast.alice, agent, name="again", retry_on_agent_loss=True, **batch)
    assert "would end with" not in text_of(dana.get(page(agent, "agent-drain")))
    lost = make_running_session(cast.alice, agent, name="lost-one", **batch)
    asked = text_of(dana.get(page(agent, "agent-drain")))
    assert "1 session cannot be stopped and would end with its work: lost-one." in asked
    dana.post(page(agent, "agent-drain"), {"within": "2m"})
    ComputeSession.objects.filter(pk=lost.pk).update(ends_at=timezone.now() + timedelta(hours=1))
    owner = Client()
    owner.force_login(cast.alice)
    head = markup(owner.get(reverse("web:session", args=[lost.pk]))).partition('id="ends-soon"')[0]
    assert "in 1 min" in head and "head-end-time" not in head, "the drain comes before the time limit"


def test_a_deadline_that_cannot_be_is_refused_at_its_field(cast: Cast, dana: Client) -> None:
    agent = make_agent("node-1")
    for within, words in (("-1h", "in the past"), ("9999d", "365 days")):
        refused = dana.post(page(agent, "agent-drain"), {"within": within})
        assert refused.status_code == 422
        assert words in refused.context["form"].errors["within"][0]
    agent.refresh_from_db()
    assert not agent.is_drained


def test_a_machine_is_switched_moved_and_given_up_by_its_name(cast: Cast, dana: Client) -> None:
    agent, far = make_agent("node-1"), make_group("far")
    make_running_session(cast.alice, agent)
    form = dana.get(page(agent, "agent-switches")).context["form"]
    changed = dana.post(page(agent, "agent-switches"), sent(form, schedulable=None, max_kernels="2"))
    assert changed.status_code == 302
    agent.refresh_from_db()
    assert (agent.schedulable, agent.max_kernels) == (False, 2)
    refused = dana.post(page(agent, "agent-move"), {"resource_group": far.pk})
    assert (refused.status_code, "drain it first" in text_of(refused)) == (422, True)
    assert dana.post(page(agent, "agent-move"), {"resource_group": far.pk, "force": "on"}).status_code == 302
    end = page(agent, "agent-terminate")
    assert "Type node-1 exactly" in text_of(dana.post(end, {"typed": "node-2"}))
    assert "is reachable and runs 1 kernel" in text_of(dana.post(end, {"typed": "node-1"}))
    Agent.objects.update(status=Agent.Status.LOST)
    assert dana.post(end, {"typed": "node-1"}).status_code == 302
    actions = AuditEntry.objects.filter(target_type="agent").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["agent.change", "agent.move", "agent.terminate"]


def test_an_agent_tells_which_images_start_on_it_and_how_to_get_one(dana: Client) -> None:
    native, docker = make_agent("native", backend="process"), make_agent("docker", backend="docker")
    assert "start here" not in text_of(dana.get(page(native))), "there are no images at all"
    python = make_image("python", process_reference="process/python", is_built_here=True, title="Snakes")
    make_image("science", is_built_here=True)
    assert "1 of 2 : Snakes" in text_of(dana.get(page(native))).replace("\u2068", "").replace("\u2069", "")
    assert "native processes. There only these images start:" in text_of(token_page(dana))
    assert "bin/build-images" in text_of(dana.get(page(docker)))
    record_images(docker, [ImageSighting(reference="local/science:latest")], "digest")
    assert "bin/build-images" not in text_of(dana.get(page(docker), **HTMX))
    Image.objects.filter(pk=python.pk).update(is_enabled=False)
    assert "No image runs here yet" in text_of(dana.get(page(native)))
    assert "bin/build-native" in text_of(dana.get(page(native)))
    assert "no image starts" in text_of(token_page(dana))


def token_page(dana: Client) -> Any:
    new = reverse("manage:join-token-new")
    return dana.post(new, sent(dana.get(new).context["form"]))


def test_a_token_is_shown_once_with_its_command(cast: Cast, dana: Client) -> None:
    make_group()
    new = reverse("manage:join-token-new")
    form = dana.get(new).context["form"]
    made = dana.post(new, sent(form, name_prefix="gpu-", valid_for="2h"))
    token = made.context["token"]
    assert "--join http://" in markup(made)
    assert markup(made).count(token) == 3, "in the command, in the button that copies it, and alone"
    assert f'data-copy="{escape(made.context["command"])}"' in markup(made)
    assert "no-store" in made["Cache-Control"]
    listed = markup(dana.get(reverse("manage:join-tokens")))
    assert token not in listed
    assert token[:10] in listed
    agent, credential = join_agent(JoinUp(token=token, name="gpu-1", gateway_url=""))
    for field, value in (("name_prefix", "GPU"), ("valid_for", "-3h"), ("valid_for", "0")):
        wrong = dana.post(new, sent(form, **{field: value}))
        assert list(wrong.context["form"].errors) == [field]
    assert dana.post(page(agent, "agent-revoke")).status_code == 302
    assert agent_of_token(credential) is None
    Agent.objects.update(backend="process")
    assert "kill -9" in markup(dana.get(page(agent, "agent-renew")))
    Agent.objects.update(backend="docker")
    assert "kill -9" not in markup(dana.get(page(agent, "agent-renew")))
    own = dana.post(page(agent, "agent-renew")).context["token"]
    assert join_agent(JoinUp(token=own, name="gpu-1", gateway_url=""))[0] == agent
    one = JoinToken.objects.order_by("pk").first()
    assert one is not None
    assert dana.post(reverse("manage:join-token-revoke", args=[one.pk])).status_code == 302
    assert not JoinToken.objects.filter(pk=one.pk).exists()


def test_a_group_is_made_with_everything_it_can_have(cast: Cast, dana: Client) -> None:
    make_group(is_default=True)
    new = reverse("manage:group-new")
    form = dana.get(new).context["form"]
    body = sent(
        form, name="gpu", is_default="on", is_public=None, projects=[str(cast.project.pk)], pending_timeout="2h"
    )
    body |= {"default_priority": "30", "default_batch_timeout": "12h", "default_environ": "A=1\nB=x=y"}
    answer = dana.post(new, body)
    assert answer.status_code == 302, answer.context["form"].errors
    group = ResourceGroup.objects.get(name="gpu")
    assert group.session_defaults == {"priority": 30, "batch_timeout": 43200.0, "environ": {"A": "1", "B": "x=y"}}
    assert (group.pending_timeout, group.is_default) == (timedelta(hours=2), True)
    assert list(group.projects.all()) == [cast.project]
    assert ResourceGroup.objects.filter(is_default=True).count() == 1
    address = reverse("manage:group", args=[group.pk])
    form = dana.get(address).context["form"]
    assert form["default_environ"].value() == "A=1\nB=x=y"
    assert dana.post(address, sent(form, sequence="drf")).status_code == 302
    entry = AuditEntry.objects.get(action="resource-group.change")
    assert entry.details["changes"] == {"sequence": ["fifo", "drf"]}
    form = dana.get(address).context["form"]
    for name, value, where in (
        ("default_environ", "LD_PRELOAD=x", "default_environ"),
        ("default_environ", "1A=x", "default_environ"),
        ("default_shm", "1zb", "default_shm"),
        ("default_batch_timeout", "-3h", "default_batch_timeout"),
        ("default_batch_timeout", "9999d", "default_batch_timeout"),
        ("default_environ", "nothing", "default_environ"),
        ("slot_order", "cpu, cpu", "slot_order"),
        ("sequence", "random", "sequence"),
        ("allowed_session_types", [], "allowed_session_types"),
        ("retries_to_skip", "-1", "retries_to_skip"),
        ("pull_timeout", "0", "pull_timeout"),
    ):
        wrong = dana.post(address, sent(form, **{name: value}))
        assert list(wrong.context["form"].errors) == [where], wrong.context["form"].errors
    assert "drf" in text_of(dana.get(reverse("manage:groups")))


def test_a_group_is_changed_as_its_page_shows_it_with_old_and_new_in_the_trail(cast: Cast, dana: Client) -> None:
    group = make_group()
    address = reverse("manage:group", args=[group.pk])
    form = dana.get(address).context["form"]
    for level in ("sequence", "selection"):
        assert [name for name, _ in form.fields[level].choices] == list(strategies(level))
    shown = [form[name].value() for name in ("create_timeout", "usage_half_life", "overtaking_limit")]
    assert shown == ["2m", "7d", "1d"]
    typed = {"slot_order": "cuda.device,  cpu,mem", "backfill": "on", "pull_timeout": "45m"}
    assert dana.post(address, sent(form, **typed)).status_code == 302
    assert dana.post(address, sent(dana.get(address).context["form"])).status_code == 302
    entry = AuditEntry.objects.get(action="resource-group.change")
    assert (entry.actor_id, entry.target_id) == (cast.dana.pk, str(group.pk))
    assert entry.details["changes"] == {
        "slot_order": [[], ["cuda.device", "cpu", "mem"]],
        "backfill": [False, True],
        "pull_timeout": ["0:30:00", "0:45:00"],
    }


def test_switching_the_sequence_changes_who_starts_next(dana: Client, cast: Cast) -> None:
    group = make_group()
    make_agent(cpu=1, mem="1g")
    older, newer = make_session(cast.alice, name="older"), make_session(cast.alice, name="newer")
    ComputeSession.objects.filter(pk=older.pk).update(created_at=timezone.now() - timedelta(minutes=5))
    switch(dana, group, sequence="lifo")
    assert schedule_group(group.pk, timezone.now()) == 1
    assert ComputeSession.objects.get(status="SCHEDULED") == newer


@pytest.mark.parametrize(("selection", "agent"), [("concentrated", "busy"), ("dispersed", "idle")])
def test_switching_the_selection_changes_where_it_starts(dana: Client, cast: Cast, selection: str, agent: str) -> None:
    group = make_group()
    make_agent("idle", cpu=8)
    make_running_session(cast.bob, make_agent("busy", cpu=8))
    session = make_session(cast.alice)
    other = "dispersed" if selection == "concentrated" else "concentrated"
    ResourceGroup.objects.filter(pk=group.pk).update(selection=other)
    switch(dana, group, selection=selection)
    assert schedule_group(group.pk, timezone.now()) == 1
    assert Kernel.objects.get(session=session).agent.name == agent


def switch(dana: Client, group: ResourceGroup, **over: str) -> None:
    address = reverse("manage:group", args=[group.pk])
    assert dana.post(address, sent(dana.get(address).context["form"], **over)).status_code == 302


def test_a_half_life_that_cannot_be_is_told_in_days(dana: Client) -> None:
    new = reverse("manage:group-new")
    refused = dana.post(new, sent(dana.get(new).context["form"], name="gpu", usage_half_life="-3h"))
    assert refused.context["form"].errors["usage_half_life"][0].startswith("It is -0.125 days; usage is counted")


def test_a_group_in_use_says_what_stands_in_the_way(cast: Cast, dana: Client) -> None:
    agent = make_agent()
    address = reverse("manage:group-delete", args=[agent.resource_group_id])
    refused = dana.post(address)
    assert (refused.status_code, "still has 1 agent" in text_of(refused)) == (422, True)
    empty = make_group("empty")
    assert dana.post(reverse("manage:group-delete", args=[empty.pk])).status_code == 302


def test_the_list_says_whether_sessions_start_there_whatever_was_done_to_the_machine(cast: Cast, dana: Client) -> None:
    now = timezone.now()
    make_agent("fine")
    make_agent("off", schedulable=False)
    make_agent("lost", status=Agent.Status.LOST)
    make_agent("draining", status=Agent.Status.DRAINING, drain_started_at=now)
    refused = make_agent("refused")
    dana.post(page(refused, "agent-drain"))
    dana.post(page(refused, "agent-cancel-drain"))
    dana.post(page(refused, "agent-revoke"))

    def answers() -> dict[str, str]:
        rows = dana.get(reverse("manage:agents")).context["table"].rows
        return {str(row.record): row.get_cell("schedulable") for row in rows}

    wanted = {
        "fine": "yes",
        "off": "no (paused)",
        "lost": "no (lost)",
        "draining": "no (draining)",
        "refused": "no (refused)",
    }
    assert answers() == wanted
    Agent.objects.filter(pk=refused.pk).update(status=Agent.Status.LOST)
    assert answers() == wanted
    assert "refused (credential revoked)" in text_of(dana.get(reverse("manage:agents")))
    assert "Accepts sessions no (refused)" in text_of(dana.get(page(refused)))


def test_a_cancelled_drain_promises_nothing_of_a_refused_machine(cast: Cast, dana: Client) -> None:
    agent = make_agent("gpu-01")
    dana.post(page(agent, "agent-drain"))
    dana.post(page(agent, "agent-revoke"))
    said = text_of(dana.post(page(agent, "agent-cancel-drain"), follow=True))
    assert "takes no sessions until its credential is renewed" in said


def test_an_empty_machine_that_is_drained_counts_no_kernels(cast: Cast, dana: Client) -> None:
    agent = make_agent("gpu-01")
    dana.post(page(agent, "agent-drain"))
    shown = text_of(dana.get(page(agent)))
    assert "Empty, safe to switch off" in shown
    assert "of 0 kernels" not in shown
