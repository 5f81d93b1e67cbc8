"""Every number that a page or REST shows of what is held, waits or is left is the ledger's."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.base.core.slots import Slots, decimal_text, format_amount
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Allocation, ComputeSession, Kernel
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import PLACED, Status
from backendai.portal.loops.loops import schedule_group
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_session, report_of

pytestmark = pytest.mark.django_db
STEPS, SLOTS = 24, ("cpu", "mem", "cuda.shares")
Amounts = dict[str, int]


class World:
    """Two people of one project and one from elsewhere, two groups with two agents each, limits of every kind."""

    def __init__(self, cast: Cast, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cast, self.people = cast, [cast.alice, cast.bob, cast.charlie]
        self.groups = [make_group("east"), make_group("west")]
        for group in self.groups:
            for gpus in ("1.5", "0"):
                capacity = Slots.parse({"cpu": 6, "mem": "12g", "cuda.shares": gpus}).to_json()
                make_agent(group=group, capacity=capacity)
        key_pair = cast.alice.key_pairs.get()
        limits: list[tuple[Any, dict[str, Any]]] = [
            (key_pair, {"slots": {"cpu": 5}, "max_sessions": 9}),
            (cast.bob, {"max_sessions": 2, "max_pending_sessions": 9}),
            (cast.project, {"slots": {"mem": "14g"}, "unnamed_slots": "unlimited"}),
            (
                cast.project.domain,
                {"slots": {"cpu": 11, "mem": "1t", "cuda.shares": "0.5"}, "unnamed_slots": "limited"},
            ),
        ]
        for number, (holder, fields) in enumerate(limits):
            holder.policy = ResourcePolicy.objects.create(name=f"p{number}", **fields)
            holder.save()

    def step(self) -> None:
        """Launch, or end, or report something."""
        action = self.dice.random()
        live = list(ComputeSession.objects.live().exclude(status=Status.TERMINATING))
        if action < 0.6 or not live:
            resources = {"cpu": self.dice.choice(["0.5", 1, 2]), "mem": self.dice.choice(["512m", "1.5g"])}
            if self.dice.random() < 0.4:
                resources["cuda.shares"] = self.dice.choice(["0.25", "0.5"])
            size, group = self.dice.choice([1, 1, 2]), self.dice.choice(["east", "west"])
            try:
                make_session(
                    self.dice.choice(self.people), resources=resources, cluster_size=size, resource_group=group
                )
            except Conflict as error:
                assert error.code == "pending-limit"
        else:
            terminate_session(self.dice.choice(live), self.cast.dana)
            for kernel in Kernel.objects.filter(status=Status.TERMINATING).select_related("agent"):
                if self.dice.random() < 0.7:
                    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))
        if self.dice.random() < 0.5:
            self.schedule()

    def schedule(self) -> None:
        for group in self.groups:
            while schedule_group(group.pk, timezone.now()):
                pass


class Ledger:
    """The truth, row by row."""

    def __init__(self) -> None:
        self.agents: dict[str, Amounts] = defaultdict(Counter)
        self.held: dict[tuple[str, str], Amounts] = defaultdict(Counter)
        self.waits: dict[tuple[str, str], Amounts] = defaultdict(Counter)
        self.own: dict[tuple[str, str], Amounts] = defaultdict(Counter)  # by owner and group
        self.sessions: Counter[tuple[str, str, bool]] = Counter()
        for row in Allocation.objects.select_related(
            "agent__resource_group", "kernel__session__owner", "kernel__session__project__domain"
        ):
            self.agents[row.agent.name][row.slot] += row.amount
            self.own[row.kernel.session.owner.email, row.agent.resource_group.name][row.slot] += row.amount
            for holder in holders_of(row.kernel.session):
                self.held[holder][row.slot] += row.amount
        for session in ComputeSession.objects.live().select_related("owner", "project__domain"):
            waits = session.status == Status.PENDING
            if not waits and session.status not in PLACED:
                continue
            for holder in holders_of(session):
                self.sessions[(*holder, waits)] += 1
                for slot, amount in (session.kernel_slots * session.cluster_size).items() if waits else ():
                    self.waits[holder][slot] += amount


def holders_of(session: ComputeSession) -> list[tuple[str, str]]:
    return [
        ("key-pair", session.access_key),
        ("user", session.owner.email),
        ("project", session.project.name),
        ("domain", session.project.domain.name),
    ]


@pytest.mark.ci
def test_every_number_that_is_shown_agrees_with_the_ledger(cast: Cast) -> None:
    world = World(cast, seed=1)
    callers = {user.email: Caller(user) for user in [*world.people, cast.dana]}
    for _ in range(2):
        for _ in range(STEPS // 2):
            world.step()
        world.schedule()
        ledger = Ledger()
        assert ledger.held, "nothing runs: there is nothing to compare"
        check_agents(ledger, callers[cast.dana.email], browser_of(cast.dana))
        check_groups(ledger, callers[cast.charlie.email], browser_of(cast.charlie))
        for user in world.people:
            check_limits(ledger, user, callers[user.email], browser_of(user))
        check_reasons(ledger, callers[cast.dana.email])


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def check_agents(ledger: Ledger, dana: Caller, browser: Client) -> None:
    shown = {each["name"]: each["occupied"] for each in dana.get("/api/v1/agents/").json()["results"]}
    assert shown == {name: texts(ledger.agents[name]) for name in shown}
    rows = browser.get(reverse("manage:agents")).content.decode()
    for agent in Agent.objects.all():
        page = browser.get(reverse("manage:agent", args=[agent.pk]))
        assert {bar.slot: bar.used for bar in page.context["bars"]} == {
            slot: ledger.agents[agent.name][slot] for slot in agent.slots
        }
        for bar in page.context["bars"]:
            assert f"{bar.used_text} of {bar.total_text}" in rows
    cluster = browser.get(reverse("web:dashboard")).context["cluster"]
    assert cluster["active"] == ComputeSession.objects.live().count()
    assert cluster["waiting"] == ComputeSession.objects.pending().count()
    assert dict(cluster["agents"]) == {"ALIVE": Agent.objects.count()}


def check_groups(ledger: Ledger, caller: Caller, browser: Client) -> None:
    rest = {each["name"]: each for each in caller.get("/api/v1/resource-groups/").json()["results"]}
    assert rest.keys() == {"east", "west"}
    for name, shown in rest.items():
        agents = list(Agent.objects.filter(resource_group__name=name))
        held = {slot: sum(ledger.agents[agent.name][slot] for agent in agents) for slot in SLOTS}
        total = {slot: sum(agent.slots[slot] for agent in agents) for slot in SLOTS}
        free = {slot: total[slot] - held[slot] for slot in SLOTS}
        assert (shown["occupied"], shown["capacity"], shown["free"]) == (text(held), text(total), text(free))
        waiting = ComputeSession.objects.pending().filter(resource_group__name=name).count()
        assert shown["pending"] == waiting
        page = browser.get(reverse("web:dashboard"), {"group": name})
        room = page.context["room"]
        assert (room.group.name, room.waiting) == (name, waiting)
        assert {bar.slot: (bar.used, bar.total) for bar in room.bars} == {one: (held[one], total[one]) for one in SLOTS}
        for slot in SLOTS:
            words = f"{format_amount(slot, held[slot])} of {format_amount(slot, total[slot])}"
            assert words in page.content.decode()
        checked = caller.post("/api/v1/check-presets/", {"resource_group": name}).json()["room"]
        assert (checked["total"], checked["used"], checked["free"]) == (text(total), text(held), text(free))


def check_limits(ledger: Ledger, user: User, caller: Caller, browser: Client) -> None:
    rest = caller.get("/api/v1/me/limits/").json()
    presets = caller.post("/api/v1/check-presets/", {"resource_group": "east"}).json()
    assert [one["scope"] for one in rest["limits"]] == ["key-pair", "user", "project", "domain"]
    limited = {(one["scope"], one["name"]): one for one in presets["limits"]}
    page = browser.get(reverse("web:dashboard"))
    gauges = {(holder.scope, holder.name): own for holder, own in page.context["holders"]}
    for shown in rest["limits"]:
        key = shown["scope"], shown["name"]
        held, waits = ledger.held[key], ledger.waits[key]
        sessions = shown["sessions"]
        assert (sessions["used"], sessions["pending"]) == (
            ledger.sessions[(*key, False)],
            ledger.sessions[(*key, True)],
        )
        for slot, one in shown["slots"].items():
            assert (one["used"], one["pending"]) == (decimal_text(held[slot]), decimal_text(waits[slot])), (key, slot)
            if one["limit"] is not None:
                assert thousandths(one["remaining"]) == max(0, thousandths(one["limit"]) - held[slot])
            if key in limited and slot in limited[key]["slots"]:
                assert limited[key]["slots"][slot] == {name: one[name] for name in ("limit", "used", "remaining")}
        of_page = {gauge.slot: gauge.allowance for gauge in gauges[key]}
        assert of_page[""].used == sessions["used"]
        assert {slot: of_page[slot].used for slot in shown["slots"]} == {slot: held[slot] for slot in shown["slots"]}
    for slot, left in presets["remaining"].items():
        assert rest["remaining"].get(slot, left) == left
    assert rest["remaining_sessions"] == presets["remaining_sessions"]
    for gauge in page.context["gauges"]:
        shown_left = rest["remaining_sessions"] if not gauge.slot else rest["remaining"].get(gauge.slot)
        left = gauge.allowance.remaining
        assert (left if not gauge.slot or left is None else decimal_text(left)) == shown_left
    for name in ("east", "west"):
        check_own_use(ledger, user, caller, browser, name)
    text_of_page = page.content.decode()
    assert "NaN" not in text_of_page
    assert "None" not in text_of_page


def check_own_use(ledger: Ledger, user: User, caller: Caller, browser: Client, group: str) -> None:
    """What one holds in a group, and how much more one can have there: over REST, on the dashboard, in the launcher."""
    presets = caller.post("/api/v1/check-presets/", {"resource_group": group}).json()
    free = {slot: thousandths(amount) for slot, amount in presets["room"]["free"].items()}
    for one in browser.get(reverse("web:dashboard"), {"group": group}).context["here"]:
        assert one.held == ledger.own[user.email, group][one.slot], (user, group, one.slot)
        left = presets["remaining"][one.slot]
        assert one.more == min(free[one.slot], free[one.slot] if left is None else thousandths(left))
        assert bool(one.holder) == (left is not None and thousandths(left) <= free[one.slot])
    launcher = browser.get(reverse("web:launch"), {"resource_group": group}).context["allocation"]
    assert launcher.group == group
    for row in launcher.rows:
        amount, left = row.words.amount, presets["remaining"][row.slot]
        assert amount.free == free[row.slot], (user, group, row.slot)
        assert (amount.quota.amount if amount.quota else None) == (None if left is None else thousandths(left))


def check_reasons(ledger: Ledger, dana: Caller) -> None:
    for session in ComputeSession.objects.pending():
        reason = dana.get(f"{SESSIONS}{session.pk}/explain/").json()["reason"]
        details = reason["details"]
        key = details.get("scope"), details.get("name")
        if reason["code"] == "too-many-sessions":
            assert details["used"] == ledger.sessions[(*key, False)]
        elif reason["code"] == "slot-limit":
            assert details["used"] == decimal_text(ledger.held[key][details["slot"]])


def texts(amounts: Amounts) -> dict[str, str]:
    return {slot: decimal_text(amount) for slot, amount in amounts.items() if amount}


def text(amounts: Amounts) -> dict[str, str]:
    return {slot: decimal_text(amount) for slot, amount in amounts.items()}


def thousandths(amount: str) -> int:
    return round(float(amount) * 1000)
