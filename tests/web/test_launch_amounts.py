"""The amounts on the launch form: bounds with whose they are, what is refused and what only waits."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.catalog.models import ImageOnAgent, ResourcePreset
from backendai.domain.cluster.idle.checkers import Places, write_checker
from backendai.domain.cluster.models import Agent, IdleChecker, ResourceGroup, SiteSetting
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.launch.fields.presets import split_size
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
GIB = 2**30


@pytest.fixture
def lab(cast: Cast) -> Cast:
    """One group with two agents of different size, of which the larger one is half taken; Alice may have 6 cores."""
    make_image()
    big = make_agent("gpu-01", capacity=slots(cpu=8, mem="16g", **{"cuda.device": 4, "cuda.shares": 2}))
    make_agent("gpu-02", capacity=slots(cpu=4, mem="8g", **{"cuda.device": 2}))
    make_running_session(cast.bob, big, resources={"cpu": 6, "mem": "10g", "cuda.device": 3})
    cast.alice.policy = ResourcePolicy.objects.create(name="six", slots={"cpu": "6"}, max_kernels_per_session=3)
    cast.alice.save()
    return cast


def slots(**amounts: Any) -> dict[str, str]:
    return Slots.parse(amounts).to_json()


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {"image": "python", "session_type": "interactive", "project": str(cast.project.pk), "preset": ""}
    return (
        values | {"resource_group": "default", "cpu": "1", "mem": "1", "mem_unit": "g", "slot.cuda.device": ""} | over
    )


def amounts(client: Client, cast: Cast, **over: Any) -> str:
    answer = client.post(reverse("web:launch_amounts"), typed(cast, **over))
    assert answer.status_code == 200
    return markup(answer)


def launch(client: Client, cast: Cast, **over: Any) -> Any:
    return client.post(reverse("web:launch"), typed(cast, **over))


def facts(page: str, slot: str) -> dict[str, str]:
    """Return the numbers that the page gives its script about a slot, and the sentences that are said."""
    block = re.search(rf'id="facts-{slot}"(.*?)>(.*?)(?=id="facts-|id="kernels-now")', page, re.S)
    assert block
    numbers = dict(re.findall(r'data-(\w+)="([^"]*)"', block[1]))
    said = re.findall(r'data-when="(\w+)">.*?<span>(.*?)</span>', block[2], re.S)
    text = " ".join(re.sub(r"<[^>]+>", " ", block[2]).split())
    return numbers | {"text": text, "offered": str("data-offered" in block[1]), "said": "; ".join(map(": ".join, said))}


def test_what_cannot_be_read_is_said_at_its_field_while_one_types(lab: Cast, browse: Browse) -> None:
    client = browse(lab.alice)
    page = amounts(client, lab, cpu="many", mem="-1", **{"slot.cuda.device": "one"})
    said = [facts(page, slot)["said"] for slot in ("cpu", "mem", "cudadevice")]
    assert said == [
        "unreadable: Write a number, such as 2 or 0.5.",
        "unreadable: Write a number, such as 4, or a size, such as 512m.",
        "unreadable: Write a whole number, such as 2.",
    ]
    page = amounts(client, lab, cpu="", mem="512m", mem_unit="g")
    assert "unreadable" not in facts(page, "cpu")["said"] + facts(page, "mem")["said"]


def test_every_amount_shows_its_bounds_and_whose_they_are(lab: Cast, browse: Browse) -> None:
    client = browse(lab.alice)
    for page in (markup(client.get(reverse("web:launch"))), amounts(client, lab)):
        cpu, mem, gpu = (facts(page, slot) for slot in ("cpu", "mem", "cudadevice"))
        assert [cpu[each] for each in ("minimum", "remaining", "maximum", "end")] == ["0.1", "4", "6", "6"]
        assert "at least 0.1 4 can start now at most 6, the limit of user alice@example.com" in cpu["text"]
        assert "6 free in default, 4 on one agent" in cpu["text"]
        assert (mem["remaining"], mem["maximum"]) == (str(8 * GIB), str(16 * GIB))
        assert "at most 16 GiB, the limit of the largest agent of default" in mem["text"]
        assert (gpu["remaining"], gpu["maximum"], gpu["step"], gpu["slide"]) == ("2", "4", "1", "1")


def test_what_waits_is_a_warning_and_what_can_never_be_is_an_error_that_names_the_limit(
    lab: Cast, browse: Browse
) -> None:
    client = browse(lab.alice)
    cases = {
        ("cpu", "5"): "queue: More than the 4 available on one agent now: the session will be queued.",
        ("cpu", "7"): "above: At most 6: that is the limit of user alice@example.com.",
        ("cpu", "0.05"): "below: At least 0.1: the image python needs it.",
        ("slot.cuda.device", "1.5"): "step: Whole numbers only.",
        ("slot.cuda.device", "5"): "above: At most 4: that is the limit of the largest agent of default.",
        ("mem", "17"): "above: At most 16 GiB: that is the limit of the largest agent of default.",
        ("mem", "12"): "queue: More than the 8 GiB available on one agent now: the session will be queued.",
        ("cpu", "4"): "",
    }
    for (field, value), said in cases.items():
        page = amounts(client, lab, **{field: value})
        assert facts(page, field.removeprefix("slot.").replace(".", ""))["said"] == said
        answer = launch(client, lab, **{field: value})
        assert answer.status_code == (302 if not said or said.startswith("queue") else 422), (field, value)
        if said.startswith("above"):
            assert field in answer.context["form"].errors
    assert ComputeSession.objects.filter(owner=lab.alice).count() == 3
    page = markup(launch(client, lab, cpu="7"))
    assert "User alice@example.com may use at most 6 CPU cores; this session alone requests 7." in page


def test_a_cluster_hears_that_its_kernels_get_no_host_files(cast: Cast, browse: Browse) -> None:
    make_image()
    group, client, files = make_group("pool"), browse(cast.alice), ["images", "cluster-files"]
    make_agent(group=group, capabilities=["images"])
    lost = make_agent(group=group, capabilities=files, status=Agent.Status.LOST)
    of_all, of_some = (
        "Kernels in this group have no host files",
        "On some agents of this group kernels have no host files",
    )
    assert of_all not in amounts(client, cast, resource_group="pool"), "one kernel has nobody to reach"
    assert of_all in amounts(client, cast, resource_group="pool", cluster_size="2")
    Agent.objects.filter(pk=lost.pk).update(status=Agent.Status.ALIVE)
    assert of_some in amounts(client, cast, resource_group="pool", cluster_size="2")
    Agent.objects.update(capabilities=files)
    assert "have no host files" not in amounts(client, cast, resource_group="pool", cluster_size="2")


def test_an_accelerator_that_was_asked_for_in_vain_can_be_taken_back(lab: Cast, browse: Browse) -> None:
    make_agent("plain", group=make_group("cpu-only"))
    client, hidden = browse(lab.alice), 'data-amount="cuda.device" hidden'
    in_vain = launch(client, lab, resource_group="cpu-only", **{"slot.cuda.device": "1"})
    assert "slot.cuda.device" in in_vain.context["form"].errors and hidden not in markup(in_vain)
    assert hidden in markup(launch(client, lab, resource_group="cpu-only", cpu="99"))


def test_without_limits_it_says_so_and_never_zero_or_a_word_of_machines(cast: Cast, browse: Browse) -> None:
    make_group()
    make_image()
    page = amounts(browse(cast.alice), cast)
    cpu = facts(page, "cpu")
    assert (cpu["maximum"], cpu["end"]) == ("", "16")
    assert "at most ∞: no limit" in cpu["text"]
    assert "nan" not in page.lower().replace("resourcenan", "")


def test_memory_is_a_number_with_a_unit_or_a_size_as_people_write_it(lab: Cast, browse: Browse) -> None:
    client = browse(lab.alice)
    written = [("2", "g"), ("2g", "m"), ("2048m", "t"), (str(2 * GIB), ""), ("2048", "m")]
    for mem, unit in written:
        assert launch(client, lab, mem=mem, mem_unit=unit).status_code == 302
    kept = [
        Slots.parse(each)["mem"]
        for each in ComputeSession.objects.filter(owner=lab.alice).values_list("slots", flat=True)
    ]
    assert kept == [2 * GIB * 1000] * 5
    assert [split_size(text) for text in ("4g", "512 MiB", "1.5t", str(3 * GIB), "many", "")] == [
        ("4", "g"), ("512", "m"), ("1.5", "t"), ("3", "g"), ("many", ""), ("", ""),
    ]  # fmt: skip
    page = markup(launch(client, lab, mem="lots"))
    assert "&#x27;lots&#x27; is not a size" in page or "&#x27;lotsg&#x27; is not a size" in page


def test_shared_memory_is_automatic_a_part_of_the_memory_and_leaves_enough(lab: Cast, browse: Browse) -> None:
    client = browse(lab.alice)
    launch(client, lab, mem="4")
    assert ComputeSession.objects.get(owner=lab.alice).shm_bytes == GIB
    assert "default for this memory is used: 1 GiB" in facts(amounts(client, lab, mem="4"), "shm")["text"]
    tight = facts(amounts(client, lab, mem="4", shm="2", shm_unit="g"), "shm")
    assert "less than twice as much memory of their own" in tight["said"]
    launch(client, lab, mem="4", shm="2", shm_unit="g")
    assert ComputeSession.objects.filter(owner=lab.alice, shm_bytes=2 * GIB).exists()
    answer = launch(client, lab, mem="4", shm="4", shm_unit="g")
    assert "Shared memory is part of the memory" in str(answer.context["form"].errors["shm"])


def test_accelerators_are_offered_when_the_group_has_and_the_environment_uses_them(lab: Cast, browse: Browse) -> None:
    make_agent(group=make_group("plain"))
    make_image("cpu-only", labels={"ai.backend.accelerators": ""})
    make_image("torch", minimum={"cuda.device": 1})
    client = browse(lab.alice)
    both = {"slot.cuda.shares": ""}
    page = amounts(client, lab, **both)
    assert [facts(page, each)["offered"] for each in ("cudadevice", "cudashares")] == ["True", "True"]
    page = amounts(client, lab, image="cpu-only", **both)
    assert [facts(page, each)["offered"] for each in ("cudadevice", "cudashares")] == ["False", "False"]
    assert "cpu-only supports none of the accelerators in default." in page
    assert "Resource group plain has none." in amounts(client, lab, resource_group="plain", **both)
    missing = facts(amounts(client, lab, image="torch"), "cudadevice")
    assert missing["said"] == "below: At least 1: the image torch needs it."
    assert "slot.cuda.device" in launch(client, lab, image="torch").context["form"].errors
    assert launch(client, lab, image="cpu-only", **{"slot.cuda.device": "1"}).status_code == 422


def test_several_kernels_share_the_limits_take_whole_accelerators_and_no_chosen_agent(
    lab: Cast, browse: Browse
) -> None:
    SiteSetting.objects.create(name="agent_select", value=True)
    client = browse(lab.alice)
    page = amounts(client, lab, cluster_size="2", cluster_mode="multi-node")
    assert facts(page, "cpu")["maximum"] == "3"
    assert "1 to 3 (limit of user alice@example.com)." in page
    assert "Of kernels with these amounts 4 can start on one agent now, and 6 on several." not in page  # 3 at most
    assert "3 can start on one agent now, and 3 on several" in page
    part = launch(client, lab, cluster_size="2", **{"slot.cuda.shares": "0.5"})
    assert "no part of one" in str(part.context["form"].errors["slot.cuda.shares"])
    chosen = launch(client, lab, cluster_size="2", agents="gpu-01")
    assert "Only a session of one kernel" in str(chosen.context["form"].errors["agents"])
    assert "at most 3" in str(launch(client, lab, cluster_size="4").context["form"].errors["cluster_size"])


def test_agents_stand_with_what_they_have_free_and_a_chosen_one_sets_the_bounds(lab: Cast, browse: Browse) -> None:
    client = browse(lab.alice)
    assert 'id="id_agents"' not in markup(client.get(reverse("web:launch")))
    SiteSetting.objects.create(name="agent_select", value=True)
    page = markup(client.get(reverse("web:launch"))).replace("\N{NO-BREAK SPACE}", " ")
    assert "gpu-01: 2 CPU · 6 GiB · 1 GPU · 2 GPU shares free" in page
    assert "gpu-02: 4 CPU · 8 GiB · 2 GPU free" in page
    cpu = facts(amounts(client, lab, agents="gpu-02"), "cpu")
    assert (cpu["maximum"], cpu["remaining"]) == ("4", "4")
    assert "the limit of agent gpu-02" in cpu["text"]


def test_presets_that_fit_come_first_and_the_others_say_why_not(lab: Cast, browse: Browse) -> None:
    for name, wanted in {
        "a-never": {"cpu": 16, "mem": "1g"},
        "b-quota": {"cpu": 7, "mem": "1g"},
        "c-later": {"cpu": 2, "mem": "12g"},
        "d-fits": {"cpu": 1, "mem": "1g"},
    }.items():
        ResourcePreset.objects.create(name=name, slots=wanted)
    client = browse(lab.alice)
    page = amounts(client, lab)
    names = re.findall(r'name="preset" value="([^"]*)"', page)
    assert names == ["d-fits", "c-later", "a-never", "b-quota", "=minimum", ""]
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Not now: needs 12 GiB Memory, 8 GiB free on one agent No agent has room" in text
    assert "Cannot start: needs 7 CPU, at most 6 User alice@example.com may use at most 6 CPU cores" in text
    assert "preset" in launch(client, lab, preset="b-quota").context["form"].errors
    make_image("roomy", minimum={"mem": "2g"})
    text = " ".join(re.sub(r"<[^>]+>", " ", amounts(client, lab, image="roomy")).split())
    assert "Cannot start Memory: At least 2 GiB: the image roomy needs it." in text


def test_what_a_limit_leaves_is_not_called_free(cast: Cast, browse: Browse) -> None:
    make_image()
    agent = make_agent(cpu=4, mem="8g")
    cast.alice.policy = ResourcePolicy.objects.create(name="three", slots={"cpu": "3"})
    cast.alice.save()
    make_running_session(cast.alice, agent, resources={"cpu": 2, "mem": "1g"})
    ResourcePreset.objects.create(name="two", slots={"cpu": 2, "mem": "1g"})
    ResourcePreset.objects.create(name="one", slots={"cpu": 1, "mem": "1g"})
    ResourcePreset.objects.create(name="huge", slots={"cpu": 1, "mem": "7500m"})
    client = browse(cast.alice)
    page = amounts(client, cast, cpu="2")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "needs 2 CPU, 1 left of the limit" in text and "needs 7.32 GiB Memory, 7 GiB free" in text
    assert "1 left of the limit of user alice@example.com 2 free in default" in facts(page, "cpu")["text"]
    assert "<strong>2</strong> free" in page, "the sidebar counts the machines"
    assert "More than the 1 that user alice@example.com has left" in facts(page, "cpu")["said"]
    many = amounts(client, cast, cpu="0.8", cluster_size="2", cluster_mode="single-node")
    assert "More than the 0.5 that each of 2 kernels can have:" in facts(many, "cpu")["said"]
    assert "needs 1 CPU, 0.5 for each kernel" in many


def test_the_minimum_is_what_the_environment_requires_and_custom_may_be_switched_off(lab: Cast, browse: Browse) -> None:
    make_image("torch", minimum={"cpu": 2, "mem": "3g", "cuda.device": 1})
    client = browse(lab.alice)
    assert launch(client, lab, image="torch", preset="=minimum").status_code == 302
    session = ComputeSession.objects.get(owner=lab.alice)
    assert session.slots == slots(cpu=2, mem="3g", **{"cuda.device": 1})
    SiteSetting.objects.create(name="custom_allocation", value=False)
    page = amounts(client, lab)
    assert 'value="=minimum"' in page
    assert 'id="preset-custom"' not in page


def test_who_may_not_see_the_room_is_told_the_quota_alone(lab: Cast, browse: Browse) -> None:
    SiteSetting.objects.create(name="group_resources_visible", value=False)
    page = amounts(browse(lab.alice), lab)
    cpu, mem = facts(page, "cpu"), facts(page, "mem")
    assert (cpu["remaining"], mem["remaining"]) == ("6", "")
    assert "free in default" not in page
    assert "can start on one agent now" not in page
    assert "free in default" in amounts(browse(lab.dana), lab)


def test_an_administrator_sees_the_owners_limits(lab: Cast, browse: Browse) -> None:
    dana = browse(lab.dana)
    assert facts(amounts(dana, lab), "cpu")["maximum"] == "8"
    assert facts(amounts(dana, lab, owner="alice@example.com"), "cpu")["maximum"] == "6"


def test_the_form_begins_with_the_first_preset_that_could_start_now(lab: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="whole", slots={"cpu": 5, "mem": "1g", "cuda.device": 1}, rank=1)
    ResourcePreset.objects.create(name="half", slots={"cpu": 3, "mem": "2g"}, rank=2)
    client = browse(lab.alice)
    page = markup(client.get(reverse("web:launch")))
    assert 'id="preset-half" checked' in page
    form = client.get(reverse("web:launch")).context["form"]
    assert (form["cpu"].value(), form["mem"].value(), form["slot.cuda.device"].value()) == ("3", "2", None)
    linked = markup(client.get(reverse("web:launch"), {"name": "my-run"}))
    assert 'id="preset-whole" checked' in linked, "an address says the same whatever is free"
    assert "&quot;preset&quot;: [&quot;whole&quot;]" in page, "what differs from it goes into the address"
    make_running_session(lab.bob, Agent.objects.get(name="gpu-02"), resources={"cpu": 2, "mem": "1g"})
    assert 'id="preset-whole" checked' in markup(client.get(reverse("web:launch"))), "none can: by rank"


@pytest.mark.parametrize("kernels", [1, 2])
def test_more_than_a_policy_allows_is_refused_alike_by_the_form_and_over_rest(
    lab: Cast, browse: Browse, kernels: int
) -> None:
    lab.alice.policy = ResourcePolicy.objects.create(name="four", slots={"cpu": "4"})
    lab.alice.save()
    client, cores = browse(lab.alice), 5 if kernels == 1 else 3
    body = {"image": "python", "resources": {"cpu": cores, "mem": "1g"}, "resource_group": "default"}
    over = {"cluster_size": kernels, "cluster_mode": "multi-node"} if kernels > 1 else {}
    refused = client.post("/api/v1/sessions/", body | over, content_type="application/json")
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["field"]) == (400, "slot-limit", "resources.cpu")
    text = f"User alice@example.com may use at most 4 CPU cores; this session alone requests {cores * kernels}."
    assert problem["detail"] == text
    form = launch(client, lab, cpu=str(cores), **over)
    assert (form.status_code, text in markup(form)) == (422, True)
    foreseen = client.post("/api/v1/session-preview/", body | over, content_type="application/json").json()
    assert (foreseen["verdict"], foreseen["reason"]["code"]) == ("never", "slot-limit")
    assert not ComputeSession.objects.filter(owner=lab.alice).exists()


def test_it_asks_the_database_the_same_however_much_there_is(
    lab: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(lab.alice)
    for lap in range(2):
        for number in range(3):
            make_running_session(lab.bob, make_agent(devices={"cuda.device": ["a"]}))
            ResourcePreset.objects.create(name=f"p-{lap}-{number}", slots={"cpu": 1})
        with django_assert_num_queries(20):
            amounts(client, lab)
        with django_assert_num_queries(26):
            client.get(reverse("web:launch"))
        with django_assert_num_queries(27):  # three of them for the image that the agent pulls first
            client.post(reverse("web:launch_preview"), typed(lab))


def test_what_idle_checkers_do_to_it_stands_under_the_group_and_follows_what_is_chosen(
    lab: Cast, browse: Browse
) -> None:
    client, other = browse(lab.alice), ResourceGroup.objects.create(name="other")
    assert '<span id="idle-short" hx-swap-oob="true"></span>' in amounts(client, lab)
    everywhere, here = Places(is_site_wide=True), Places(groups=[other])
    both = {"session_types": ["interactive", "batch"], "warning": timedelta(minutes=5)}
    lifetime = {"name": "day", "kind": "session-lifetime", "limit": timedelta(days=1), **both}
    unused = {
        "name": "hour",
        "kind": "network-timeout",
        "limit": timedelta(hours=1),
        "warning": timedelta(minutes=1),
    }
    lazy = {"kind": "utilization", "thresholds": {"cpu": 5}, "limit": timedelta(hours=2), **both}
    write_checker(None, IdleChecker(), lifetime, everywhere)
    write_checker(None, IdleChecker(), unused | {"session_types": ["interactive"]}, everywhere)
    write_checker(None, IdleChecker(), {"name": "lazy"} | lazy, here)
    for part in (amounts(client, lab), markup(client.get(reverse("web:launch")))):
        assert ">Session ends after 1h without activity · after 1d in any case</span>" in part
        assert "<li>Ends after 1h without traffic. The owner is warned 1m before.</li>" in part
    assert ">Session ends after 1d in any case</span>" in amounts(
        client, lab, session_type="batch", startup_command="true"
    )
    there = amounts(client, lab, resource_group="other")
    assert ">Session ends after 1h without activity · after 2h below CPU 5 % · after 1d in any case</span>" in there


def test_only_agents_that_can_run_the_image_count(cast: Cast, browse: Browse) -> None:
    """The sidebar, the marks and the foot of the page agree: a native agent has room, but not for this image."""
    local = make_agent("local", cpu=4, mem="8g")
    make_agent("native-2", cpu=16, mem="32g", backend="process")
    image = make_image("built", is_built_here=True)
    ImageOnAgent.objects.create(agent=local, reference=image.reference)
    make_image(process_reference="process/python")
    make_running_session(cast.bob, local, resources={"cpu": 3, "mem": "1g"})
    client = browse(cast.alice)
    everywhere = amounts(client, cast)
    assert (facts(everywhere, "cpu")["maximum"], facts(everywhere, "cpu")["remaining"]) == ("16", "16")
    assert "<strong>17</strong> free" in everywhere and "is not counted" not in everywhere
    for page in (amounts(client, cast, image="built"), markup(client.get("/sessions/new/?image=built"))):
        assert (facts(page, "cpu")["maximum"], facts(page, "cpu")["remaining"]) == ("4", "1")
        assert "native-2 is not counted: it has no containers." in page
        assert "<strong>1</strong> free" in page and "<strong>17</strong> free" not in page
    SiteSetting.objects.create(name="group_resources_visible", value=False)
    for page in (amounts(client, cast, image="built"), markup(client.get("/sessions/new/?image=built"))):
        assert "is not counted" not in page and 'class="card room"' not in page


def test_an_image_that_is_still_built_hides_no_accelerator_and_no_bound(lab: Cast, browse: Browse) -> None:
    make_image("soon", is_built_here=True)
    page = amounts(browse(lab.alice), lab, image="soon")
    assert (facts(page, "cudadevice")["maximum"], facts(page, "cudadevice")["remaining"]) == ("4", "0")
    assert facts(page, "cpu")["remaining"] == "0" and "data-offered" in page
    assert "2 agents are not counted, as they do not have the image: gpu-01, gpu-02." in page


def test_which_agents_run_the_image_takes_a_fixed_number_of_queries(cast: Cast, browse: Browse) -> None:
    image = make_image("built", is_built_here=True)
    client, numbers = browse(cast.alice), []
    for number in (1, 5):
        for _ in range(number):
            ImageOnAgent.objects.create(agent=make_agent(), reference=image.reference)
            make_agent(backend="process")
        with CaptureQueriesContext(connection) as captured:
            amounts(client, cast, image="built")
        numbers.append(len(captured))
    assert numbers[0] == numbers[1]
