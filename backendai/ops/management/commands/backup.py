"""``manage.py backup FILE``: writes database and keys into one file, with ``--folders`` also the files of folders."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import UserError
from backendai.base.core.version import VERSION
from backendai.base.paths.packing import Entry
from backendai.files.config import read_hosts
from backendai.ops.backup import databases, folders
from backendai.ops.backup.archive import KEYS, BackupRefused, Manifest, file_entry, write

_STANDARD_OUTPUT = "-"
_MOST_NAMED = 10


class Command(BaseCommand):
    """Works while the platform runs."""

    help = "Save the database and the keys of the data folder in one file. Works while the platform runs."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="new file, such as backup.tar.gz; - for standard output")
        parser.add_argument(
            "--folders", action="store_true", help="also the files of folders on the storage hosts of this machine"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the backup. Raises CommandError, and leaves no half file then."""
        to_pipe = options["file"] == _STANDARD_OUTPUT
        say = (self.stderr if to_pipe else self.stdout).write
        try:
            hosts = storage_hosts() if options["folders"] else {}
            with tempfile.TemporaryDirectory(dir=settings.DATA_DIR, prefix=".backup-") as scratch:
                manifest, entries = self._collect(Path(scratch), hosts)
                with open_standard_output() if to_pipe else new_private_file(Path(options["file"])) as out:
                    say("Writing the backup ...")
                    left = write(out, manifest, entries, Path(scratch), say)
        except (BackupRefused, UserError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"The backup failed: {error}. No file was written.") from error
        for name in left[:_MOST_NAMED]:
            say(f"Skipped, because it cannot be read or is not a regular file: {name}")
        if len(left) > _MOST_NAMED:
            say(f"... and {len(left) - _MOST_NAMED} others, which the last file of the archive names.")
        if not (settings.DATA_DIR / KEYS[0]).exists():
            say("The keys come from the environment (BACKENDAI_SECRET_KEY, ...): keep .env with the backup.")
        say("Done. The file holds all keys: keep it where only administrators can read it.")

    def _collect(self, scratch: Path, hosts: dict[str, Path]) -> tuple[Manifest, Iterator[Entry]]:
        """Return the manifest, and all that follows it; copies the database. Raises BackupRefused."""
        database = settings.DATABASES["default"]
        kind = databases.kind_of(database)
        owned = folders.owners(hosts, settings.DEPLOYMENT)
        copy = scratch / databases.MEMBERS[kind]
        migrations = databases.save(database, copy)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(VERSION, date, settings.DEPLOYMENT, kind, migrations, owned)

        def entries() -> Iterator[Entry]:
            yield file_entry(copy.name, copy)
            for path in (settings.DATA_DIR / name for name in KEYS):
                if path.exists():
                    yield file_entry(f"data/{path.name}", path)
            yield from folders.entries(hosts)

        return manifest, entries()


def storage_hosts() -> dict[str, Path]:
    """Return the storage hosts of this machine. Raises UserError."""
    return read_hosts(os.environ.get("BACKENDAI_STORAGE_HOSTS", "")) or {"local": settings.DATA_DIR / "folders"}


@contextmanager
def open_standard_output() -> Iterator[IO[bytes]]:
    """Yield standard output. Raises BackupRefused if it is a terminal."""
    if sys.stdout.isatty():
        raise BackupRefused("Standard output is a terminal: write backup - >FILE.")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def new_private_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that only its owner can read, and that has its name only when it is complete. Raises OSError."""
    if path.exists():
        raise BackupRefused(f"{path} exists already. Name a new file.")
    draft = path.with_name(f"{path.name}.partial")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
