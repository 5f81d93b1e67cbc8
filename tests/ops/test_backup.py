"""``backup`` and ``restore``: all comes back, and nothing else gets in."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from backendai.base.paths.packing import NOTE
from backendai.base.paths.storage_layout import MARKER, Marker
from backendai.files.process import prepare_host
from backendai.ops.backup import databases
from backendai.ops.run import data_folder
from tests import prepared
from tests.system.stores import stores

ROOT = Path(__file__).parents[2]
SECRETS = {"secret_key": "k" * 50, "ticket_key": "t" * 50, "deployment": "d-one"}
Members = list[tuple[tarfile.TarInfo, bytes]]


def make_data(data: Path, *, text: str = "ada") -> Path:
    """Make a data folder as a stopped platform leaves it, with a file, a link and a strange name in a folder."""
    data.mkdir()
    prepared.copy_sqlite(data / "portal.sqlite3")
    with closing(sqlite3.connect(data / "portal.sqlite3")) as connection:
        connection.execute("CREATE TABLE people (name)")
        connection.execute("INSERT INTO people VALUES (?)", [text])
        connection.commit()
    for name, content in (("secrets.json", json.dumps(SECRETS)), ("local-join-token", "join_x"), ("prepared", "stamp")):
        (data / name).write_text(content)
        (data / name).chmod(0o600)
    (data / "folders").mkdir()
    prepare_host(data / "folders", Marker("d-one", "local", os.geteuid() or 1000))
    inside = data / "folders" / "ab" / "folder" / "data"
    inside.mkdir(parents=True)
    (inside / "run.sh").write_text("echo thesis")
    (inside / "run.sh").chmod(0o750)
    (inside / "link").symlink_to("/etc/passwd")
    Path(os.fsdecode(os.fsencode(inside) + b"/\xff")).write_bytes(b"x")
    os.mkfifo(inside / "pipe")
    return data


def people(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM people")]


def manage(data: Path, *words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BACKENDAI_", "DJANGO_", "DATA"))}
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT, env=kept | {"BACKENDAI_DATA": str(data)}, capture_output=True, check=False, **how,
    )  # fmt: skip


@pytest.fixture
def use(settings: Any) -> Callable[[Path], Path]:
    """Let the commands of this process work on a data folder."""

    def use_folder(data: Path) -> Path:
        data.mkdir(exist_ok=True)
        settings.DATA_DIR = data
        name = str(data / "portal.sqlite3")
        settings.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": name}}
        settings.DEPLOYMENT = "d-one"
        return data

    return use_folder


@pytest.fixture
def backup(tmp_path: Path, use: Callable[[Path], Path]) -> Path:
    """A backup with folders; the commands work on a new data folder afterwards."""
    use(make_data(tmp_path / "old"))
    call_command("backup", str(tmp_path / "backup.tar.gz"), "--folders", stdout=io.StringIO())
    use(tmp_path / "new")
    return tmp_path / "backup.tar.gz"


def members(backup: Path) -> Members:
    with tarfile.open(backup) as archive:
        listed = [each for each in archive if not each.name.startswith(NOTE)]  # after the end
        return [(each, (archive.extractfile(each) or io.BytesIO()).read() if each.isreg() else b"") for each in listed]


def rewrite(backup: Path, change: Callable[[Members], Members]) -> None:
    changed = change(members(backup))
    with tarfile.open(backup, "w:gz") as archive:
        for member, content in changed:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def with_manifest(**values: Any) -> Callable[[Members], Members]:
    def change(found: Members) -> Members:
        (first, content), *others = found
        return [(first, json.dumps(json.loads(content) | values).encode()), *others]

    return change


def with_member(name: str, content: bytes = b"x", link: str = "") -> Callable[[Members], Members]:
    def change(found: Members) -> Members:
        added = tarfile.TarInfo(name)
        if link:
            added.type, added.linkname = tarfile.SYMTYPE, link
        return [*found[:-1], (added, b"" if link else content), found[-1]]

    return change


def restore(backup: Path, *options: str) -> str:
    out = io.StringIO()
    call_command("restore", str(backup), *options, stdout=out)
    return out.getvalue()


def refused(backup: Path, *options: str) -> str:
    """Return the sentence with which a restore is refused; nothing is in the data folder then."""
    with pytest.raises(CommandError) as refusal:
        restore(backup, *options)
    return str(refusal.value)


def test_all_comes_back_in_a_new_data_folder(tmp_path: Path) -> None:
    data, file = make_data(tmp_path / "data"), tmp_path / "backup.tar.gz"
    done = manage(data, "backup", str(file), "--folders")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "folder/data/pipe" in done.stdout.decode() and "k" * 50 not in done.stdout.decode()
    assert sorted(path.name for path in data.iterdir() if path.name.startswith(".")) == []

    new = tmp_path / "new"
    done = manage(new, "restore", str(file), "--folders")
    assert done.returncode == 0, done.stderr
    assert people(new / "portal.sqlite3") == ["ada"]
    assert json.loads((new / "secrets.json").read_text()) == SECRETS
    assert {stat.S_IMODE((new / name).stat().st_mode) for name in ("portal.sqlite3", "secrets.json")} == {0o600}
    inside = new / "folders" / "ab" / "folder" / "data"
    assert sorted(os.listdir(os.fsencode(inside))) == [b"link", b"run.sh", b"\xff"]
    assert (inside / "run.sh").read_text() == "echo thesis" and (inside / "link").readlink() == Path("/etc/passwd")
    old = data / "folders" / "ab" / "folder" / "data"
    for name in ("run.sh", "."):
        assert (inside / name).stat().st_mode == (old / name).stat().st_mode
    assert json.loads((new / "folders" / MARKER).read_text()) == json.loads((data / "folders" / MARKER).read_text())
    assert (inside / "run.sh").stat().st_uid == json.loads((new / "folders" / MARKER).read_text())["uid"]


@pytest.mark.ci
def test_it_goes_through_a_pipe_and_replaces_what_is_there_on_request(tmp_path: Path) -> None:
    piped = manage(make_data(tmp_path / "data"), "backup", "-")
    assert piped.returncode == 0 and b"Done." in piped.stderr
    there = make_data(tmp_path / "there", text="bob")
    done = manage(there, "restore", "-", "--force", input=piped.stdout)
    assert done.returncode == 0, done.stderr
    assert people(there / "portal.sqlite3") == ["ada"]
    assert not (there / "prepared").exists(), "the next start looks for migrations"


def test_writes_go_on_meanwhile_and_none_is_lost_in_the_side_files(tmp_path: Path, use: Any) -> None:
    data = use(make_data(tmp_path / "data"))
    with closing(sqlite3.connect(data / "portal.sqlite3")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("INSERT INTO people VALUES ('eve')")
        connection.commit()
        call_command("backup", str(tmp_path / "backup.tar.gz"), stdout=io.StringIO())
        connection.execute("INSERT INTO people VALUES ('zoe')")
        connection.commit()
        assert list(tmp_path.glob("data/*-wal"))
        use(tmp_path / "new")
        restore(tmp_path / "backup.tar.gz")
    assert people(tmp_path / "new" / "portal.sqlite3") == ["ada", "eve"]


def test_a_file_is_not_replaced_by_a_backup(backup: Path, use: Any) -> None:
    use(backup.parent / "old")
    with pytest.raises(CommandError, match="exists already"):
        call_command("backup", str(backup))


def test_a_running_platform_is_not_restored(backup: Path) -> None:
    lock = data_folder.lock(backup.parent / "new")
    try:
        said = refused(backup, "--force")
        assert "already runs" in said and "BACKENDAI_DATA=DIR" in said
    finally:
        os.close(lock)


def test_a_database_that_is_there_is_replaced_on_request_only(backup: Path, use: Any) -> None:
    there = use(make_data(backup.parent / "there", text="bob"))
    assert "--force" in refused(backup)
    assert people(there / "portal.sqlite3") == ["bob"]
    restore(backup, "--force")
    assert people(there / "portal.sqlite3") == ["ada"]


def test_folders_stay_where_nobody_asked_for_them_and_where_others_are(backup: Path, use: Any) -> None:
    restore(backup)
    assert not (backup.parent / "new" / "folders").exists()
    use(backup.parent / "old")
    assert "has folders" in refused(backup, "--force", "--folders")
    assert (backup.parent / "old" / "folders" / "ab").is_dir()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_manifest(database="postgresql"), "DATABASE_URL says SQLite"),
        (with_manifest(migrations=[["accounts", "0999_later"]], version="9.0"), "Install version 9.0"),
        (with_manifest(format=2, version="9.0"), "Restore it with version 9.0"),
        (lambda found: found[1:], "does not begin with a manifest"),
        (lambda found: found[:-1], "its end is missing"),
        (lambda found: [found[0], *found[2:]], "holds no database"),
        (lambda found: [found[0], (found[1][0], b"x" * 5000), *found[2:]], "damaged"),
        (with_member("data/../../evil"), "which no backup holds"),
        (with_member("/etc/evil"), "which no backup holds"),
        (with_member("data/secrets.json", b"x" * 2**17), "which no backup holds"),
        (with_member("folders/local/../../evil"), "holds '..'"),
        (with_member("folders/other/x"), "which its manifest does not name"),
    ],
)
def test_another_or_damaged_backup_changes_nothing(
    backup: Path, change: Callable[[Members], Members], sentence: str
) -> None:
    rewrite(backup, change)
    assert sentence in refused(backup, "--folders")
    new = backup.parent / "new"
    assert {path.name for path in new.iterdir()} <= {"up.lock", "logs", "valkey", "folders"}
    assert {path.name for path in (new / "folders").glob("*")} <= {MARKER}
    assert not list(backup.parent.rglob("evil"))


def test_a_cut_file_and_another_one_are_refused(backup: Path) -> None:
    whole = backup.read_bytes()
    for content in (whole[: len(whole) // 2], b"SQLite format 3\0", b""):
        backup.write_bytes(content)
        assert "backup" in refused(backup)
    assert not (backup.parent / "new" / "portal.sqlite3").exists()


def test_no_link_of_a_backup_leads_out_of_a_folder(backup: Path) -> None:
    outside = backup.parent / "outside"
    outside.mkdir(mode=0o777)
    rewrite(backup, with_member("folders/local/ab/way", link=str(outside)))
    rewrite(backup, with_member("folders/local/ab/way/evil"))
    assert refused(backup, "--folders")
    assert not list(outside.iterdir())
    assert not (backup.parent / "new" / "portal.sqlite3").exists()


@pytest.mark.ci
def test_postgresql_comes_back_and_nothing_of_the_later_database_stays(
    tmp_path: Path, use: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(tmp_path / "data")
    with stores() as servers:
        with psycopg.connect(servers.database_url, autocommit=True) as connection:
            connection.execute("CREATE TABLE django_migrations (id serial, app text, name text)")
            connection.execute("CREATE TABLE people AS SELECT 'ada' AS name")
        settings.DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql"} | _as_django(servers.database_url)}
        call_command("backup", str(tmp_path / "backup.tar.gz"), stdout=io.StringIO())
        with psycopg.connect(servers.database_url, autocommit=True) as connection:
            connection.execute("UPDATE people SET name = 'bob'")
            connection.execute("CREATE TABLE later ()")
            assert "programs are connected" in refused(tmp_path / "backup.tar.gz", "--force")
        assert "--force" in refused(tmp_path / "backup.tar.gz")
        restore(tmp_path / "backup.tar.gz", "--force")
        with psycopg.connect(servers.database_url) as connection:
            assert connection.execute("SELECT name FROM people").fetchall() == [("ada",)]
            assert connection.execute("SELECT to_regclass('later')").fetchall() == [(None,)]
        monkeypatch.setattr(databases.shutil, "which", lambda name: None)
        monkeypatch.setattr(databases.Path, "glob", lambda self, pattern: iter(()))
        with pytest.raises(CommandError, match="pg_dump is missing"):
            call_command("backup", str(tmp_path / "other.tar.gz"))


def _as_django(url: str) -> dict[str, str]:
    found = psycopg.conninfo.conninfo_to_dict(url)
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}
    return {name: str(found.get(key) or "") for name, key in names.items()}
