"""``manage.py appproxy``: serves the apps of sessions to browsers, each app on its own origin."""

from __future__ import annotations

from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.process.switch_interval import shorten_turns
from backendai.gates.appproxy.server import serve


class Command(BaseCommand):
    help = "Serve the apps of sessions under BACKENDAI_APPS_DOMAIN."
    suppressed_base_arguments = DJANGOS_OWN

    def handle(self, *arguments: Any, **options: Any) -> None:
        """Serve until SIGTERM or SIGINT."""
        shorten_turns()
        try:
            uvloop.run(serve(settings.APPS_HOST, settings.APPS_PORT))
        except OSError as error:
            raise CommandError(f"Port {settings.APPS_PORT} on {settings.APPS_HOST} cannot be used: {error}") from error
