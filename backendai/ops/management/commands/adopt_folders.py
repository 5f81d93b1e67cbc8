"""``manage.py adopt_folders``: creates rows for folders on a storage host that are missing in the database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.domain.accounts.models import User
from backendai.domain.storage.file_server import FileServerError
from backendai.domain.storage.models import StorageHost
from backendai.domain.storage.services.adopting import adopt_folders


class Command(BaseCommand):
    help = (
        "Add rows for folders on storage hosts that are not in the database, for example after its loss, from the "
        "metadata beside their data. Changes no file. Without --write it only lists the folders."
    )
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", help="name of the storage host; default: all")
        parser.add_argument("--owner", help="e-mail address of the owner of folders whose owner is unknown")
        parser.add_argument("--write", action="store_true", help="add the rows")

    def handle(self, *args: Any, **options: Any) -> None:
        hosts = StorageHost.objects.order_by("name")
        if options["host"]:
            hosts = hosts.filter(name=options["host"])
        if not hosts:
            raise CommandError(
                "Storage host not found." if options["host"] else "No storage host exists. Create one first."
            )
        owner = None
        if options["owner"]:
            owner = User.objects.filter(email=options["owner"].lower(), purged_at=None).first()
            if owner is None:
                raise CommandError(f"User {options['owner']} not found.")
        done = failed = 0
        for host in hosts:
            try:
                for one in adopt_folders(host, owner=owner, dry=not options["write"], now=timezone.now()):
                    mark = one.problem or ("adopted" if options["write"] else "can be adopted")
                    self.stdout.write(f"{host.name}  {one.folder_id}  {one.name}  {one.owner}: {mark}")
                    done, failed = done + (not one.problem), failed + bool(one.problem)
            except FileServerError as error:
                raise CommandError(error.message) from error
        self.stdout.write(f"{done} {'adopted' if options['write'] else 'to adopt'}, {failed} cannot be adopted.")
        if failed:
            raise SystemExit(1)
