"""The amounts that a launch may ask for: they agree with the ledger, the limits, and what the scheduler does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import Project, ResourcePolicy
from backendai.domain.accounts.policies.applicable import DOMAIN, KEY_PAIR, PROJECT, USER, key_of
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import SiteSetting
from backendai.domain.compute.models import Allocation
from backendai.domain.compute.services.requests.limits import limit_views
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.compute.status import Status
from backendai.domain.planning.agents import read_agent_rows, read_agents
from backendai.domain.planning.amounts.availability import availability, obstacles
from backendai.domain.planning.amounts.bounds import Amount, Bound, Shape, amounts_of, kernels_now
from backendai.domain.planning.snapshot import rules_of
from backendai.portal.loops.group_pass import schedule
from backendai.scheduler.limits import Limits
from backendai.scheduler.snapshot import Holder
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db
GIB = 2**30 * 1000
ALONE = Shape()
GPUS = {"cpu": 8, "mem": "16g", "cuda.device": 4}


def gpu_agent(name: str = "", **over: Any) -> Any:
    slots = {**GPUS, **over.pop("slots", {})}
    return make_agent(name, capacity=Slots.parse(slots).to_json(), **over)


def look(cast: Cast, shape: Shape = ALONE, image: Image | None = None) -> dict[str, Amount]:
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    found = availability(cast.alice, project, make_group())
    return {amount.slot: amount for amount in amounts_of(found, image or make_image(), shape)}


def give(holder: Any, **limits: Any) -> None:
    holder.policy = ResourcePolicy.objects.create(name=f"of {holder}", **limits)
    holder.save()


def test_every_amount_names_its_bounds_and_whose_they_are(cast: Cast) -> None:
    busy = gpu_agent("busy")
    gpu_agent("silent", slots={"cpu": 32}, status="LOST")
    make_running_session(cast.bob, busy, resources={"cpu": 3, "mem": "4g", "cuda.device": 1})
    give(cast.alice, slots={"mem": "6g", "cuda.device": 2})
    SiteSetting.objects.create(name="container_caps", value={"cpu": "16"})
    found = look(cast)
    assert list(found) == ["cpu", "mem", "cuda.device"]
    cpu, mem, gpu = found.values()
    assert (cpu.minimum, cpu.maximum) == (Bound(100, "image", "python"), Bound(16_000, "site"))
    assert (cpu.quota, cpu.free, cpu.on_one, cpu.remaining) == (None, 5000, 5000, 5000)
    assert mem.maximum == mem.quota == Bound(6 * GIB, "user", "alice@example.com")
    assert (gpu.maximum, gpu.remaining, gpu.step) == (Bound(2000, "user", "alice@example.com"), 2000, 1000)
    assert look(cast, image=make_image("small", maximum={"cpu": 2}))["cpu"].maximum == Bound(2000, "image", "small")


def test_without_agents_and_limits_there_is_no_maximum_and_nothing_free(cast: Cast) -> None:
    cpu, mem = look(cast).values()
    assert (cpu.maximum, mem.maximum, cpu.remaining, mem.remaining) == (None, None, 0, 0)


def test_only_accelerators_that_the_image_can_use_and_the_group_has_are_offered(cast: Cast) -> None:
    gpu_agent(slots={"rocm.device": 2})
    assert {"cuda.device", "rocm.device"} <= look(cast).keys()
    cuda = make_image("torch", labels={"ai.backend.accelerators": "cuda"}, minimum={"cuda.device": 1})
    assert look(cast, image=cuda).keys() == {"cpu", "mem", "cuda.device"}
    assert look(cast, image=cuda)["cuda.device"].is_required
    assert look(cast, image=make_image("plain", labels={"ai.backend.accelerators": ""})).keys() == {"cpu", "mem"}
    tpu = look(cast, image=make_image("jax", minimum={"tpu.device": 1}))["tpu.device"]
    assert (tpu.is_required, tpu.is_offered, tpu.remaining) == (True, False, 0)


def test_several_kernels_share_what_there_is_and_take_whole_accelerators(cast: Cast) -> None:
    for _ in range(2):
        gpu_agent(slots={"cuda.shares": 2})
    give(cast.project, slots={"cpu": 12})
    alone, packed, spread = (look(cast, Shape(*each)) for each in ((1,), (2,), (2, True)))
    assert [each["mem"].remaining // GIB for each in (alone, packed, spread)] == [16, 8, 16]
    assert [each["cpu"].maximum.amount for each in (alone, packed, spread)] == [8000, 4000, 6000]  # type: ignore[union-attr]
    assert [each["cuda.shares"].step for each in (alone, packed, spread)] == [10, 1000, 1000]


def test_a_chosen_agent_is_the_only_one_that_counts(cast: Cast) -> None:
    gpu_agent("large")
    make_agent("small", cpu=2, mem="4g")
    found = look(cast, Shape(agent="small"))
    assert found["cpu"].maximum == Bound(2000, "agent", "small")
    assert "cuda.device" not in found


def test_it_says_how_many_kernels_fit_now(cast: Cast) -> None:
    for _ in range(2):
        make_agent(cpu=4, mem="8g")
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    asked = Slots.parse({"cpu": 1, "mem": "3g"})
    assert kernels_now(availability(cast.alice, project, make_group()), asked) == (2, 4)
    give(project, slots={"cpu": 3})
    assert kernels_now(availability(cast.alice, project, make_group()), asked) == (2, 3)


def test_kernels_on_agents_that_join_no_other_agents_are_not_counted_together(cast: Cast) -> None:
    make_agent(cpu=4, mem="8g")
    for _ in range(2):
        make_agent(cpu=3, mem="8g", capabilities=["images"])
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    assert kernels_now(availability(cast.alice, project, make_group()), Slots.parse({"cpu": 1})) == (4, 4)
    make_agent(cpu=1, mem="8g")
    assert kernels_now(availability(cast.alice, project, make_group()), Slots.parse({"cpu": 1})) == (4, 5)


def test_a_cluster_is_promised_only_what_agents_that_join_others_have(cast: Cast) -> None:
    make_agent(cpu=2, mem="8g")
    for _ in range(2):
        make_agent(cpu=6, mem="8g", capabilities=["images"])
    promised = look(cast, Shape(2, True))["cpu"].remaining
    assert promised == 3000, "one agent alone holds both kernels"
    session = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node", resources={"cpu": 4})
    schedule(session.resource_group, timezone.now())
    session.refresh_from_db()
    assert session.status == Status.PENDING
    fitting = make_session(cast.alice, cluster_size=2, cluster_mode="multi-node", resources={"cpu": 3}, priority=90)
    schedule(session.resource_group, timezone.now())
    fitting.refresh_from_db()
    assert fitting.status == Status.SCHEDULED


@some("seed", range(12))
def test_the_marks_never_contradict_the_ledger_or_the_scheduler(cast: Cast, seed: int) -> None:
    chance = random.Random(seed)
    _random_house(cast, chance)
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    group = make_group()
    found = availability(cast.alice, project, group)
    taken = occupied_by_agent()
    agents = read_agents(group, read_agent_rows(group), {}, ())
    serving = [agent for agent in agents if agent.alive and agent.schedulable]
    for amount in amounts_of(found, make_image()):
        free = [max(0, each.capacity[amount.slot] - taken.get(each.id, Slots())[amount.slot]) for each in serving]
        assert (amount.free, amount.on_one) == (sum(free), max(free, default=0))
        left = found.remaining.get(amount.slot)
        assert left == (amount.quota.amount if amount.quota else None)
        expected = amount.on_one if left is None else min(amount.on_one, left)
        assert amount.remaining == expected // amount.step * amount.step
        fits = [{amount.slot: amount.remaining}, {amount.slot: amount.remaining + amount.step}]
        at, beyond = obstacles(
            [Slots(each) for each in fits],
            agents,
            group=group.name,
            rules=rules_of(group),
            limits=Limits(limit_views(found.limited)),
            holder=_holder(cast),
        )
        assert amount.remaining == 0 or at is None or at.code == "too-many-sessions"
        assert beyond is not None


def test_it_asks_the_database_the_same_however_much_there_is(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    group, image = make_group(), make_image()
    project = Project.objects.select_related("domain").get(pk=cast.project.pk)
    give(cast.alice, slots={"cpu": 50})
    for _ in range(2):
        for _ in range(3):
            make_running_session(cast.alice, gpu_agent(), resources={"cpu": 1, "mem": "1g", "cuda.device": 1})
        found = availability(cast.alice, project, group)
        with django_assert_num_queries(1):  # the settings of the site
            amounts_of(found, image)


def test_an_accelerator_that_the_image_cannot_use_is_refused_at_the_door_too(cast: Cast) -> None:
    gpu_agent(slots={"rocm.device": 2})
    make_image("torch", labels={"ai.backend.accelerators": "cuda"})
    asked = {"cpu": 1, "mem": "1g"}
    make_session(cast.alice, image="torch", resources=asked | {"cuda.device": 1})
    with pytest.raises(UserError, match="it supports cuda") as refused:
        make_session(cast.alice, image="torch", resources=asked | {"rocm.device": 1})
    assert (refused.value.code, refused.value.field) == ("accelerator-not-supported", "resources.rocm.device")


def _random_house(cast: Cast, chance: random.Random) -> None:
    agents = [
        gpu_agent(
            slots={"cpu": chance.randint(1, 16), "cuda.device": chance.randint(0, 4)},
            **chance.choice([{}, {}, {"status": "LOST"}, {"schedulable": False}]),
        )
        for _ in range(chance.randint(0, 4))
    ]
    for agent in agents:
        for _ in range(chance.randint(0, 2)):
            if agent.status == "ALIVE" and agent.schedulable and not Allocation.objects.filter(agent=agent).exists():
                gpus = chance.randint(0, min(1, int(agent.capacity.get("cuda.device", 0))))
                asked = {"cpu": "0.5", "mem": f"{chance.randint(1, 8)}g", **({"cuda.device": gpus} if gpus else {})}
                make_running_session(chance.choice([cast.alice, cast.bob]), agent, resources=asked)
    for holder in (cast.alice.key_pairs.get(), cast.alice, cast.project, cast.project.domain):
        if chance.random() < 0.5:
            slots = {"cpu": chance.randint(0, 12), "mem": f"{chance.randint(1, 20)}g"}
            give(holder, slots=slots, unnamed_slots=chance.choice(["limited", "unlimited"]))


def _holder(cast: Cast) -> Holder:
    return Holder(
        user=key_of(USER, cast.alice.pk),
        key_pair=key_of(KEY_PAIR, cast.alice.key_pairs.get().pk),
        project=key_of(PROJECT, cast.project.pk),
        domain=key_of(DOMAIN, cast.project.domain_id),
    )
