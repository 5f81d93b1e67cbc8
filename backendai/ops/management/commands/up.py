"""``manage.py up``: runs ``bin/up`` in an existing Python environment."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand

from backendai.base.core.command_help import DJANGOS_OWN


class Command(BaseCommand):
    help = "Start the whole platform on this machine; see --help of bin/up for the options."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Replace this process with the supervisor, which does not load Django."""
        os.environ["PYTHONPATH"] = str(settings.BASE_DIR)
        os.execv(sys.executable, [sys.executable, "-m", "backendai.ops.run.up", *argv[2:]])  # noqa: S606

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the same as the command line, for ``call_command``."""
        self.run_from_argv(["manage.py", "up", *args])
