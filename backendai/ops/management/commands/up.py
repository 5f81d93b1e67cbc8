"""``manage.py up`` and ``backendai up``: run ``bin/up`` in an existing Python environment."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.run.manage import become_supervisor


class Command(BaseCommand):
    """What lists the command; the command line comes past it, without Django."""

    help = "Start the whole platform on this machine; see up --help for the options."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the same as the command line, for ``call_command``."""
        become_supervisor(args)
