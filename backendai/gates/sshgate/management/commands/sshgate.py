"""``manage.py sshgate``: opens sessions to SSH clients."""

from __future__ import annotations

from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.gates.sshgate.server import serve


class Command(BaseCommand):
    help = "Serve SSH into sessions on BACKENDAI_SSH_PORT."
    suppressed_base_arguments = DJANGOS_OWN

    def handle(self, *arguments: Any, **options: Any) -> None:
        """Serve until SIGTERM or SIGINT."""
        try:
            uvloop.run(serve(settings.SSH_HOST, settings.SSH_PORT, shares_port=settings.SSH_PROCESSES > 1))
        except OSError as error:
            raise CommandError(f"Port {settings.SSH_PORT} on {settings.SSH_HOST} cannot be used: {error}") from error
