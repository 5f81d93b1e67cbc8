"""``manage.py doctor``: checks every prerequisite; exit code 1 if something does not work."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.doctor.check import Check
from backendai.ops.doctor.rounds import examine


class Command(BaseCommand):
    help = "Check the requirements of the platform on this machine, and print how to repair each problem."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a list of objects instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the findings. Raises CommandError if there is a problem."""
        checks = examine()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(check) for check in checks], indent=2))
        else:
            self._print(checks)
        if any(check.level == "problem" for check in checks):
            sys.exit(1)

    def _print(self, checks: list[Check]) -> None:
        styles = {"ok": self.style.SUCCESS, "warning": self.style.WARNING, "problem": self.style.ERROR}
        for check in checks:
            self.stdout.write(f"{styles[check.level](f'{check.level:<8}')} {check.name}: {check.message}")
            if check.fix:
                self.stdout.write(f"{'':<8} -> {check.fix}")
        counts = {level: sum(check.level == level for check in checks) for level in styles}
        self.stdout.write(f"\n{counts['ok']} ok, {counts['warning']} warnings, {counts['problem']} problems")
