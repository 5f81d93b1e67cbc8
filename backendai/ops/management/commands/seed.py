"""``manage.py seed``: creates the initial data of a fresh installation."""

import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.demo.lab import ADMIN, HERE, SEED
from backendai.ops.demo.seeding import fill
from backendai.ops.tools.seeding import seed


class Command(BaseCommand):
    help = "Create the first administrator, project, resource group, presets and image if they are missing."
    suppressed_base_arguments = DJANGOS_OWN

    def handle(self, *args: Any, **options: Any) -> None:
        seed(
            settings.DATA_DIR,
            admin_email=ADMIN if settings.DEMO else os.environ.get("BACKENDAI_ADMIN_EMAIL", "admin@example.com"),
            admin_password=os.environ.get("BACKENDAI_ADMIN_PASSWORD", ""),
            group_name=HERE if settings.DEMO else "default",
        )
        if settings.DEMO:
            fill(timezone.now(), seed=SEED)
