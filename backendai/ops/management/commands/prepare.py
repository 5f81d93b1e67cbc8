"""``manage.py prepare``: updates the database and the collected assets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.checks import SETTINGS
from backendai.ops.run.data_folder import fingerprint, make_database_private

_STAMP = ".collected-from"


class Command(BaseCommand):
    help = "Apply migrations, create the initial rows, collect static files. Safe to repeat."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Update the database and assets in the needed order.

        Raises SystemCheckError before that for invalid settings, and CommandError for a database from before 1.0.
        """
        self.check(tags=[SETTINGS])
        database = settings.DATABASES["default"]
        if "sqlite" in database["ENGINE"]:
            make_database_private(Path(database["NAME"]))
        self._refuse_older_database()
        call_command("migrate", interactive=False, verbosity=options["verbosity"] - 1)
        call_command("seed")
        self._collect_static()

    def _refuse_older_database(self) -> None:
        loader = MigrationLoader(connection)
        ours = {app.label for app in apps.get_app_configs() if app.name.startswith("backendai.")}
        gone = sorted(key for key in loader.applied_migrations if key[0] in ours and key not in loader.disk_migrations)
        if gone:
            raise CommandError(
                f"A version before 1.0 made this database ({'.'.join(gone[-1])}), and this one cannot upgrade it. Use "
                "a new data folder or database, or go on with the earlier version; docs/operations.md (Upgrading from "
                "before 1.0) says how to take people and folders along."
            )

    def _collect_static(self) -> None:
        root = Path(settings.STATIC_ROOT)
        requirements = settings.BASE_DIR / "requirements.txt"
        wanted = fingerprint([*map(Path, settings.STATICFILES_DIRS)]) + str(requirements.stat().st_mtime_ns)
        stamp = root / _STAMP
        if stamp.exists() and stamp.read_text() == wanted:
            return
        self.stdout.write("Collecting static files ...")
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.write_text(wanted)
