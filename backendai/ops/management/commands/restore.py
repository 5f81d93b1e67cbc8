"""``manage.py restore FILE``: puts database and keys of a backup in place, with ``--folders`` also the files."""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db.migrations.loader import MigrationLoader

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import UserError
from backendai.base.core.version import VERSION
from backendai.ops.backup import databases, folders
from backendai.ops.backup.archive import KEYS, BackupRefused, Manifest, reading, save, save_key
from backendai.ops.management.commands.backup import storage_hosts
from backendai.ops.run import data_folder

_STANDARD_INPUT = "-"

Members = Iterator[tuple[tarfile.TarInfo, IO[bytes]]]


class Command(BaseCommand):
    """Unpacks everything beside its place first: a damaged backup changes nothing."""

    help = "Restore a backup into this data folder and database while the platform is stopped."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="what backup has written; - for standard input")
        parser.add_argument("--folders", action="store_true", help="also the files of folders, if the backup has them")
        parser.add_argument("--force", action="store_true", help="replace the present database and keys for good")

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore. Raises CommandError while nothing is changed, except for faults of the disk or of PostgreSQL."""
        try:
            with locked(settings.DATA_DIR), opened(options["file"]) as stream:
                databases.refuse_use(settings.DATABASES["default"], force=options["force"])
                with (
                    tempfile.TemporaryDirectory(dir=settings.DATA_DIR, prefix=".restore-") as scratch,
                    reading(stream) as (manifest, members),
                ):
                    self._restore(Path(scratch), manifest, members, with_folders=options["folders"])
        except (BackupRefused, UserError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"The backup cannot be restored: {error}.") from error
        self.stdout.write("Done. Start the platform: it updates an older database, and adopts the sessions that run.")

    def _restore(
        self,
        scratch: Path,
        manifest: Manifest,
        members: Members,
        *,
        with_folders: bool,
    ) -> None:
        database = settings.DATABASES["default"]
        refuse_other(manifest, databases.kind_of(database))
        self.stdout.write(f"A backup of version {manifest.version} from {manifest.date}. Unpacking ...")
        if with_folders and not manifest.folders:
            raise BackupRefused("The backup holds no folders. Restore it without --folders.")
        owned = manifest.folders if with_folders else {}
        restored = folders.Restored(storage_hosts(), owned, manifest.deployment)
        copy = scratch / databases.MEMBERS[manifest.database]
        try:
            self._unpack(members, copy, restored, with_folders=bool(owned))
            self._put_in_place(scratch, copy, restored)
        except BaseException:
            restored.discard()
            raise

    def _unpack(self, members: Members, copy: Path, restored: folders.Restored, *, with_folders: bool) -> None:
        """Write the members beside their places. Raises BackupRefused."""
        for member, content in members:
            if member.name == copy.name and member.isreg():
                save(content, copy, member.size)
                databases.check(settings.DATABASES["default"], copy)
            elif not folders.is_folder_member(member.name):
                save_key(member, content, copy.parent)
            elif with_folders:
                restored.add(member, content)
        if not copy.exists():
            raise BackupRefused("The backup holds no database. Nothing was restored.")

    def _put_in_place(self, scratch: Path, copy: Path, restored: folders.Restored) -> None:
        self.stdout.write("Replacing the database ...")
        databases.put(settings.DATABASES["default"], copy)
        for name in KEYS:
            if (scratch / name).exists():
                (scratch / name).replace(settings.DATA_DIR / name)
        restored.finish()
        (settings.DATA_DIR / data_folder.STAMP).unlink(missing_ok=True)  # the next start applies migrations
        if restored.files:
            self.stdout.write(f"{restored.files} files and directories of folders are in place.")


def refuse_other(manifest: Manifest, kind: str) -> None:
    """Raise BackupRefused for a backup of another kind of database, or of a newer version."""
    if manifest.database != kind:
        names = {databases.SQLITE: "SQLite", databases.POSTGRESQL: "PostgreSQL"}
        raise BackupRefused(
            f"The backup holds a database of {names.get(manifest.database, 'another kind')}, and DATABASE_URL says "
            f"{names[kind]}. Set DATABASE_URL to an empty database of that kind (empty: SQLite in the data folder)."
        )
    ours = {app.label for app in apps.get_app_configs() if app.name.startswith("backendai.")}
    known = MigrationLoader(None).disk_migrations
    newer = sorted((app, name) for app, name in manifest.migrations if app in ours and (app, name) not in known)
    if newer:
        raise BackupRefused(
            f"Version {manifest.version} made this backup, with a database that this version {VERSION} does not know "
            f"({'.'.join(newer[-1])}). Install version {manifest.version}, and restore with it."
        )


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the data folder, so that no bin/up runs on it. Raises BackupRefused if one does."""
    if data.exists() and data.stat().st_uid != os.geteuid():
        owner = data.stat().st_uid
        raise BackupRefused(f"{data} belongs to user {owner}, who must read what is restored. Run this as that user.")
    try:
        lock = data_folder.lock(data)
    except data_folder.StartRefused as refusal:  # which names the option of bin/up
        raise BackupRefused(str(refusal).replace("--data DIR", "BACKENDAI_DATA=DIR")) from refusal
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """Yield the backup. Raises OSError."""
    if name == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file
