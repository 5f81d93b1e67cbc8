"""Many simulated agents in one process, for load tests. The portal must run with ``bench.many_agents.settings``."""

from __future__ import annotations

import logging
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.portal.client import PortalClient
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import JoinDown, JoinUp
from bench.many_agents.fleet import Fleet, FleetClient

_AT_ONCE = 8


def main(words: list[str] | None = None) -> None:
    """Simulate until SIGTERM or SIGINT; the simulated kernels end with it."""
    parser = ArgumentParser(prog="python -m bench.many_agents.simulate", description=__doc__)
    parser.add_argument("--agents", type=int, default=10, metavar="N", help="number of agents (10)")
    parser.add_argument("--join", required=True, metavar="URL", help="the portal")
    parser.add_argument("--token", required=True, help="a reusable join token for names that begin with sim")
    parser.add_argument("--capacity", default="cpu=64,mem=256g", metavar="SLOTS", help="of each agent (%(default)s)")
    options = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopped = _when_asked_to_end()
    joined = join([f"sim-{place:04}" for place in range(1, options.agents + 1)], options.join, options.token)
    capacity = Slots.parse(dict(slot.split("=") for slot in options.capacity.split(",")))
    backend = SimulatedBackend(deployment=joined[0].deployment, capacity=capacity, pace=SimulatedDurations())
    fleet = Fleet(FleetClient(options.join), backend)
    fleet.add((answer.name, answer.token) for answer in joined)
    fleet.run(stopped)


def join(names: Sequence[str], portal_url: str, token: str) -> list[JoinDown]:
    """Return the portal's answers to nodes that join with one token; they have no gateway."""
    client = PortalClient(portal_url)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(lambda name: client.join(JoinUp(token=token, name=name, gateway_url="")), names))
    finally:
        client.close()


def _when_asked_to_end() -> threading.Event:
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return ended


if __name__ == "__main__":
    main()
