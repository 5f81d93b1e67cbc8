"""``manage.py file_server``: serves the files of folders."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import UserError
from backendai.files.process import add_arguments, run


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT."""

    help = "Serve the files of folders from the storage hosts of this machine."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run(options, os.environ)
        except UserError as error:
            raise CommandError(error.message) from error
