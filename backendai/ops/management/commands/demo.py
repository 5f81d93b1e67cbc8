"""``manage.py demo``: runs the machines and the people of ``bin/up --demo``."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import ResourceGroup
from backendai.ops.demo import machines, people
from backendai.ops.demo.lab import SEED


class Command(BaseCommand):
    help = "Run the simulated machines, or the people, of a demonstration that bin/up --demo has started."
    suppressed_base_arguments = DJANGOS_OWN

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=("machines", "people"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT. Raises CommandError outside of a demonstration."""
        if not settings.DEMO:
            raise CommandError("This is no demonstration: start one with bin/up --demo.")
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        if options["part"] == "people":
            people.run(ended, seed=SEED, speed=settings.DEMO_SPEED)
        else:
            machines.run(settings.PORTAL_URL, settings.DATA_DIR, _token_for, ended)


def _token_for(group: str) -> str:
    return create_join_token(ResourceGroup.objects.get(name=group))
