"""``manage.py agent``: an agent's process."""

from __future__ import annotations

import logging
import os
import signal
import threading
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backendai.agent.gateway.thread import listen, public_url
from backendai.agent.loop.choose import choose_accelerators, choose_backend
from backendai.agent.loop.runtime import AgentRuntime
from backendai.agent.loop.worker import run_worker
from backendai.agent.portal.broker import BrokerAccess
from backendai.agent.portal.bundling import BundlingClient
from backendai.agent.portal.joining import ensure_joined
from backendai.agent.settings.config import NodeSettings, read_settings
from backendai.agent.settings.credentials import load_credentials, lock_data
from backendai.agent.settings.marks import BACKENDS
from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import BackendAIError
from backendai.base.process.json_logs import note_of_process
from backendai.base.process.telemetry import report_faults, send_traces

logger = logging.getLogger(__name__)

_DEFAULT_PORTAL = "http://127.0.0.1:8080"


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; containers continue."""

    help = "Run an agent on this machine."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--join", metavar="URL", help="address of the portal; needed once, with --token")
        parser.add_argument("--token", help="join token from an administrator")
        parser.add_argument("--name", help="this agent's name (default: its host name)")
        parser.add_argument("--backend", choices=BACKENDS, help="how to run kernels (default: auto)")
        parser.add_argument("--data", metavar="DIR", help="data folder of this agent")
        parser.add_argument("--gateway-host", metavar="ADDRESS", help="listen address of the gateway")
        parser.add_argument(
            "--gateway-port",
            type=int,
            metavar="PORT",
            help="listen port of the gateway (0: choose a free port once and keep it)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # With this variable set, Celery would set up Django inside the worker.
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)
        try:
            settings = read_settings(os.environ, options)
            note_of_process(agent=settings.name)
            report_faults(os.environ.get("BACKENDAI_SENTRY_DSN", ""))
            send_traces(os.environ.get("BACKENDAI_OTLP_ENDPOINT", "").rstrip("/"), "backendai-agent", ("celery",))
            lock = lock_data(settings.data)
            runtime, broker, name = _assemble(settings)
        except BackendAIError as error:
            raise CommandError(error.message) from error
        try:
            if broker.first():
                raise SystemExit(run_worker(runtime, name=name, address=broker.again))
            _run_alone(runtime)
        finally:
            os.close(lock)


def _assemble(settings: NodeSettings) -> tuple[AgentRuntime, BrokerAccess, str]:
    """Return the assembled agent, its broker access and its name."""
    kept = load_credentials(settings.data)
    portal_url = settings.portal_url or (kept.portal_url if kept else _DEFAULT_PORTAL)
    listener = listen(settings, portal_url)
    gateway_url = public_url(settings, listener, portal_url)
    credentials = ensure_joined(settings, portal_url=portal_url, gateway_url=gateway_url)
    accelerators = choose_accelerators(settings)
    backend = choose_backend(settings, credentials, accelerators)
    logger.info("agent %s: backend %s, portal %s, gateway %s", credentials.name, backend.name, portal_url, gateway_url)
    portal = BundlingClient(portal_url, credentials.token, name=credentials.name)
    runtime = AgentRuntime(
        settings,
        credentials,
        backend=backend,
        accelerators=accelerators,
        portal=portal,
        listener=listener,
        gateway_url=gateway_url,
    )
    broker = BrokerAccess(
        settings.data,
        portal,
        token=credentials.token,
        told=settings.broker_url,
    )
    return runtime, broker, credentials.name


def _run_alone(runtime: AgentRuntime) -> None:
    """Run without a broker until a signal; only the sync brings orders."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    runtime.start()
    ended.wait()
    runtime.stop()
