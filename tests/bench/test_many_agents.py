"""Many simulated nodes in one process: one call for all, and words that are kept until they are answered."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import Desired, KernelReport, KernelSpec, KernelState, StopOrder, SyncDown
from bench.many_agents.fleet import Fleet, FleetClient
from bench.many_agents.messages import FLEET_WORDS, FleetAnswer, FleetDown, FleetNode, FleetUp
from bench.many_agents.simulate import join
from tests.agent.http_portal import JOIN_TOKEN, NODE_TOKEN, HttpPortal
from tests.agent.specs import make_spec

RUNNING, TERMINATED = KernelState.RUNNING, KernelState.TERMINATED
ROOM = Slots.parse({"cpu": 8, "mem": "64g", "cuda.device": 2})


class Portal(FleetClient):
    """The portal in memory: what was said to it, and what it will answer to whom."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.calls: list[FleetUp] = []
        self.start: dict[str, list[KernelSpec]] = {}
        self.stop: dict[str, list[StopOrder]] = {}
        self.desired: dict[str, list[Desired]] = {}
        self.unknown: set[str] = set()
        self.failures: list[Exception] = []

    def fleet(self, up: FleetUp) -> FleetDown:
        self.calls.append(up)
        if self.failures:
            raise self.failures.pop(0)
        if up.nodes[0].token in self.unknown:
            raise PortalRefused("unknown node", status=401)
        return FleetDown(nodes=[self._answer(node) for node in up.nodes])

    def _answer(self, node: FleetNode) -> FleetAnswer:
        if node.token in self.unknown:
            return FleetAnswer(status=401, code="unknown-node")
        known = {kernel_id for kernel_id, _ in node.known}
        start = [spec for spec in self.start.get(node.token, []) if spec.kernel_id not in known]
        down = None
        if node.up is not None:
            desired = self.desired.get(node.token, [])
            down = SyncDown(deployment="test", public_key="key", interval=5.0, desired=desired)
        stop = self.stop.get(node.token, [])
        return FleetAnswer(down=down, applied=[True] * len(node.reports), start=start, stop=stop)

    def words(self, token: str) -> list[KernelReport]:
        return [report for call in self.calls for node in call.nodes if node.token == token for report in node.reports]

    def states(self, token: str) -> list[KernelState]:
        return [report.state for report in self.words(token)]


class World:
    """A fleet of nodes t-0, t-1 … with a clock that the test moves."""

    def __init__(self, nodes: int = 2) -> None:
        self.now = 1000.0
        self.portal = Portal()
        self.backend = SimulatedBackend(
            deployment="test", capacity=ROOM, pace=SimulatedDurations(), clock=lambda: self.now
        )
        self.fleet = Fleet(self.portal, self.backend, interval=1.0, clock=lambda: self.now)
        self.fleet.add((f"n-{number}", f"t-{number}") for number in range(nodes))

    def let_pass(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            self.fleet.turn()
            self.now += step
        self.fleet.turn()


def spec_for(node: str, **over: Any) -> KernelSpec:
    return make_spec(agent=node, kernel_id=uuid4(), **over)


def test_a_kernel_starts_runs_and_ends_by_itself_and_its_log_is_kept() -> None:
    world = World()
    spec = spec_for("n-0", session_type="batch", command="sleep 3; exit 4")
    world.portal.start["t-0"] = [spec]
    world.let_pass(3)
    world.portal.start.clear()
    assert world.portal.states("t-0") == [RUNNING]
    world.let_pass(4)
    ended = world.portal.words("t-0")[-1]
    assert (ended.state, ended.exit_code, ended.reason) == (TERMINATED, 4, "exited")
    (tail,) = [log for call in world.portal.calls for node in call.nodes for log in node.logs]
    assert "line-3" in tail.text
    assert world.backend.find(spec.kernel_id) is None
    assert world.portal.states("t-1") == []


def test_words_are_said_again_until_the_portal_has_answered() -> None:
    world = World()
    world.portal.start["t-0"] = [spec_for("n-0")]
    world.let_pass(0.5)
    world.portal.start.clear()
    world.portal.failures = [PortalUnreachable("down"), PortalUnreachable("down")]
    world.let_pass(12)
    assert world.portal.states("t-0") == [RUNNING] * 3
    world.let_pass(3)
    assert world.portal.states("t-0") == [RUNNING] * 3


def test_an_order_to_end_ends_the_kernel_and_one_for_a_kernel_that_is_not_here_is_answered() -> None:
    world = World()
    spec, stranger = spec_for("n-0"), uuid4()
    world.portal.start["t-0"] = [spec]
    world.let_pass(3)
    world.portal.start.clear()
    world.portal.stop["t-0"] = [
        StopOrder(kernel_id=spec.kernel_id, generation=spec.generation),
        StopOrder(kernel_id=stranger, generation=5),
    ]
    world.let_pass(2)
    ends = {report.kernel_id: report.generation for report in world.portal.words("t-0") if report.state == TERMINATED}
    assert ends == {spec.kernel_id: spec.generation, stranger: 5}


def test_an_image_that_does_not_exist_is_told() -> None:
    world = World()
    world.portal.start["t-1"] = [spec_for("n-1", image="no-such-image")]
    world.let_pass(1)
    assert world.portal.words("t-1")[0].reason == "image-not-found"


def test_a_newer_generation_takes_the_place_of_an_older_one() -> None:
    world = World()
    spec = spec_for("n-0", generation=1)
    world.portal.start["t-0"] = [spec]
    world.let_pass(2)
    world.portal.start["t-0"] = [spec.model_copy(update={"generation": 2})]
    world.let_pass(2)
    world.portal.start["t-0"] = [spec]
    world.let_pass(2)
    assert [(word.state, word.generation) for word in world.portal.words("t-0")] == [(RUNNING, 1), (RUNNING, 2)]


def test_a_kernel_that_the_portal_counts_on_and_nobody_has_is_told_at_the_second_look() -> None:
    world = World()
    missing = uuid4()
    world.portal.desired["t-0"] = [Desired(kernel_id=missing, generation=3, started=True)]
    world.let_pass(18)
    (word,) = {report.kernel_id: report for report in world.portal.words("t-0")}.values()
    assert (word.kernel_id, word.generation, word.reason) == (missing, 3, "container-missing")


def test_a_node_syncs_as_often_as_the_portal_says_and_tells_its_images_once() -> None:
    world = World(nodes=3)
    world.let_pass(60)
    ups = [node.up for call in world.portal.calls for node in call.nodes if node.token == "t-2" and node.up]
    assert 10 <= len(ups) <= 15
    assert [up.images is not None for up in ups] == [True] + [False] * (len(ups) - 1)
    assert ups[0].devices == {"cuda.device": ["SIM-0", "SIM-1"]}
    assert len(world.portal.calls) <= 61, "one call for all nodes"


def test_a_node_that_the_portal_has_forgotten_does_not_shut_out_the_others() -> None:
    world = World(nodes=3)
    world.portal.unknown = {"t-0"}
    world.portal.start["t-2"] = [spec_for("n-2")]
    world.let_pass(10)
    assert world.portal.states("t-2") == [RUNNING]


def test_words_that_the_portal_refused_are_not_forgotten() -> None:
    world = World()
    world.portal.start["t-0"] = [spec_for("n-0")]
    world.let_pass(0.5)
    world.portal.unknown = {"t-0"}
    world.let_pass(6)
    refused = len(world.portal.words("t-0"))
    assert refused
    world.portal.unknown = set()
    world.let_pass(3)
    assert len(world.portal.words("t-0")) > refused


def test_many_words_and_logs_are_said_in_several_calls() -> None:
    world = World()
    strangers = [StopOrder(kernel_id=uuid4(), generation=1) for _ in range(FLEET_WORDS + 1)]
    world.portal.stop["t-0"] = strangers
    world.let_pass(0.5)
    world.portal.stop.clear()
    world.let_pass(2)
    assert max(len(node.reports) for call in world.portal.calls for node in call.nodes) == FLEET_WORDS
    assert {word.kernel_id for word in world.portal.words("t-0")} == {order.kernel_id for order in strangers}


def test_nodes_join_with_one_token() -> None:
    portal = HttpPortal()
    try:
        assert [answer.token for answer in join(["sim-1", "sim-2"], portal.url, JOIN_TOKEN)] == [NODE_TOKEN] * 2
        assert sorted(up.name for up in portal.joins) == ["sim-1", "sim-2"]
    finally:
        portal.close()
