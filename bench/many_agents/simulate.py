"""Many simulated agents in one process, for load tests. The portal must run with ``bench.many_agents.settings``."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from types import FrameType
from typing import Any

from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.gateway.thread import GatewayThread, listen, public_url
from backendai.agent.kernel_index import KernelIndex
from backendai.agent.settings.config import NodeSettings, read_settings
from backendai.agent.settings.credentials import lock_data
from backendai.base.core.errors import BackendAIError, UserError
from backendai.base.core.slots import Slots
from bench.many_agents.client import FleetClient
from bench.many_agents.fleet import INTERVAL, Fleet
from bench.many_agents.joining import FleetCredentials, ensure_fleet_joined, node_names

logger = logging.getLogger(__name__)

_DEFAULT_PORTAL = "http://127.0.0.1:8080"
_MACHINE = Slots.parse({"cpu": 64, "mem": "256g"})
_MOST_AGENTS = 10_000


def main(words: list[str] | None = None) -> None:
    """Simulate until SIGTERM or SIGINT; the simulated kernels end with it."""
    options = vars(_options(words))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _check(options)
        settings = read_settings(_environ(options), options)
        lock = lock_data(settings.data)
        simulation = _Simulation(settings, options)
    except BackendAIError as error:
        sys.exit(error.message)
    try:
        simulation.run(_when_asked_to_end())
    finally:
        os.close(lock)


def _options(words: list[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m bench.many_agents.simulate", description=__doc__)
    parser.add_argument("--agents", type=int, default=10, metavar="N", help="number of agents (10)")
    parser.add_argument("--join", metavar="URL", help="the portal")
    parser.add_argument("--token", help="a reusable join token for names with this prefix; needed once")
    parser.add_argument("--prefix", default="sim", dest="name", help="names of the agents: PREFIX-0001 and so on (sim)")
    parser.add_argument("--capacity", metavar="SLOTS", help="slots of each agent (cpu=64,mem=256g)")
    parser.add_argument("--start-seconds", type=float, default=1.0, help="how long a start takes (1)")
    parser.add_argument("--batch-seconds", type=float, default=60.0, help="how long a batch program takes (60)")
    parser.add_argument("--time-scale", type=float, default=1.0, help="real seconds per simulated one (1)")
    parser.add_argument("--interval", type=float, default=INTERVAL, help="seconds between two calls (0.5)")
    parser.add_argument("--usage", type=float, default=0.0, help="seconds between measurements of use (0: none)")
    parser.add_argument("--data", metavar="DIR", help="folder of the agents' credentials")
    return parser.parse_args(words)


class _Simulation:
    """The fleet with one gateway for the terminals and logs of all its kernels."""

    def __init__(self, settings: NodeSettings, options: Mapping[str, Any]) -> None:
        portal_url = settings.portal_url or _DEFAULT_PORTAL
        listener = listen(settings, portal_url)
        gateway_url = public_url(settings, listener, portal_url)
        names = node_names(settings.name, options["agents"])
        who = ensure_fleet_joined(
            settings.data, names, portal_url=portal_url, join_token=settings.join_token, gateway_url=gateway_url
        )
        backend = _backend(settings, who, options)
        client, roster = FleetClient(portal_url), KernelIndex()
        self._public_key = who.public_key
        self._fleet = Fleet(
            client,
            backend,
            roster,
            gateway_url=gateway_url,
            interval=options["interval"],
            usage_interval=options["usage"],
            on_key=self._heed_key,
        )
        self._fleet.add((name, who.tokens[name]) for name in names)
        view = GatewayView(backend, roster, lambda: self._public_key, client.now, self._fleet.health)
        self._gateway = GatewayThread(Gateway(view), listener)
        logger.info("%d simulated nodes, portal %s, gateway %s", len(names), portal_url, gateway_url)

    def run(self, stopped: threading.Event) -> None:
        """Simulate until ``stopped`` is set."""
        self._gateway.start()
        self._fleet.run(stopped)
        self._gateway.stop()

    def _heed_key(self, key: str) -> None:
        self._public_key = key


def _check(options: Mapping[str, Any]) -> None:
    if not 1 <= options["agents"] <= _MOST_AGENTS:
        raise UserError(f"--agents {options['agents']}: use 1 to {_MOST_AGENTS}.", field="agents")
    for name, least, most in (
        ("start_seconds", 0.0, 3600.0),
        ("batch_seconds", 0.0, 86400.0),
        ("time_scale", 0.0, 1000.0),
        ("interval", 0.05, 60.0),
        ("usage", 0.0, 600.0),
    ):
        if not least <= options[name] <= most:
            option = name.replace("_", "-")
            raise UserError(f"--{option} {options[name]:g}: use {least:g} to {most:g}.", field=name)


def _environ(options: Mapping[str, Any]) -> dict[str, str]:
    told = {"BACKENDAI_AGENT_SLOTS": options["capacity"]} if options["capacity"] else {}
    return {**os.environ, **told}


def _backend(settings: NodeSettings, who: FleetCredentials, options: Mapping[str, Any]) -> SimulatedBackend:
    pace = SimulatedDurations(
        start_seconds=options["start_seconds"],
        batch_seconds=options["batch_seconds"],
        time_scale=options["time_scale"],
    )
    return SimulatedBackend(deployment=who.deployment, capacity=settings.slots or _MACHINE, pace=pace)


def _when_asked_to_end() -> threading.Event:
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return ended


if __name__ == "__main__":
    main()
