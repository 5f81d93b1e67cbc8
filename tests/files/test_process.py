"""The process around the file server: its settings, the preparation of hosts, what bin/up and doctor do for it."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest
from pytest_django import Settings as SettingsWrapper

from backendai.base.core.errors import UserError
from backendai.base.paths.storage_layout import Marker, read_marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.storage.models import StorageHost
from backendai.files.config import read_settings
from backendai.files.process import prepare_host, run
from backendai.ops.doctor.storage import file_system, storage
from backendai.ops.run import fleet, ports
from backendai.ops.run.data_folder import StartRefused
from backendai.ops.run.fleet import Choice
from backendai.ops.tools.seeding import seed_storage
from tests.files.conftest import DEPLOYMENT, prepare


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("BACKENDAI_STORAGE_HOSTS", value) for value in ("local", "=/x", "local=x", "A=/x", "a=/x,a=/y", "a=/../x")),
        *(("BACKENDAI_FILES_BIND", value) for value in ("8093", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", ":1:")),
        *(("BACKENDAI_FILES_LINKED_PATHS", value) for value in ("/", "data", "/a/../b")),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(UserError, match=name):
        read_settings({name: value})


def test_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    settings = read_settings({"BACKENDAI_DATA": str(tmp_path), "BACKENDAI_FILES_BIND": "[::1]:9000"})
    assert (settings.hosts, settings.address, settings.port) == ({"local": tmp_path / "folders"}, "::1", 9000)
    with pytest.raises(UserError, match=r"file-server\.json"):
        settings.keys()
    (tmp_path / "file-server.json").write_text('{"public_key": "PEM", "deployment": "d"}')
    assert settings.keys() == ("PEM", "d")
    told = read_settings({"BACKENDAI_FILES_PUBLIC_KEY": "a\\nb", "BACKENDAI_STORAGE_HOSTS": "a=/x, b=/y"})
    assert told.keys() == ("a\nb", "")
    assert told.hosts == {"a": Path("/x"), "b": Path("/y")}


def test_a_host_is_prepared_once(tmp_path: Path) -> None:
    share, stamp = tmp_path / "share", tmp_path / "stamp"
    environ = {
        "BACKENDAI_STORAGE_HOSTS": f"nfs={share}",
        "BACKENDAI_DEPLOYMENT": DEPLOYMENT,
        "BACKENDAI_FILES_PUBLIC_KEY": "PEM",
    }
    with pytest.raises(UserError, match="not a directory"):
        run({"prepare": "nfs"}, environ)
    share.mkdir()
    with pytest.raises(UserError, match="BACKENDAI_STORAGE_HOSTS"):
        run({"prepare": "other"}, environ)
    run({"prepare": "nfs", "once": stamp}, environ)
    assert read_marker(share, host="nfs") == Marker(DEPLOYMENT, "nfs", os.geteuid() or 1000)
    with pytest.raises(UserError, match="already"):
        run({"prepare": "nfs"}, environ)
    (share / ".backendai-storage.json").unlink()
    run({"prepare": "nfs", "once": stamp}, environ)
    assert os.listdir(share) == [], "a share that is not mounted was taken for a new one"


def test_its_process_knows_nothing_of_the_portals_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKENDAI_SECRET_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://user:password@host/db")
    monkeypatch.setenv("BACKENDAI_FILES_LINKED_PATHS", "/data")
    program = fleet.files_program(Choice("127.0.0.1", 18000, tmp_path, 1, "docker"))
    assert not program.inherit and not program.fork_from
    assert program.environment["BACKENDAI_FILES_LINKED_PATHS"] == "/data"
    assert not {"BACKENDAI_SECRET_KEY", "DATABASE_URL"} & program.environment.keys()


def test_its_port_is_the_same_at_each_start_and_another_when_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKENDAI_FILES_BIND", raising=False)
    with closing(ports.PortClaims()) as claims:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            assert ports.listens(f"127.0.0.1:{port}")
            assert ports.files_bind(claims, port - 13) != f"127.0.0.1:{port}"
            monkeypatch.setenv("BACKENDAI_FILES_BIND", f"127.0.0.1:{port}")
            with pytest.raises(StartRefused, match="BACKENDAI_FILES_BIND"):
                ports.files_bind(claims, 8080)
        assert ports.files_bind(claims, 8080) == f"127.0.0.1:{port}"
        monkeypatch.setenv("BACKENDAI_STORAGE_HOSTS", "nonsense")
        with pytest.raises(StartRefused, match="BACKENDAI_STORAGE_HOSTS"):
            ports.files_bind(claims, 8080)


@pytest.mark.django_db
def test_the_first_start_makes_the_host_of_this_machine(tmp_path: Path, settings: SettingsWrapper) -> None:
    settings.LOCAL_FOLDERS, settings.FILES_URL = tmp_path / "folders", "http://127.0.0.1:1"
    seed_storage(tmp_path)
    host = StorageHost.objects.get()
    assert (host.name, host.address, host.is_default) == ("local", "http://127.0.0.1:1", True)
    assert read_marker(tmp_path / "folders", host="local", deployment=settings.DEPLOYMENT)
    told = json.loads((tmp_path / "file-server.json").read_text())
    assert told == {"deployment": settings.DEPLOYMENT, "public_key": public_key_of(settings.TICKET_KEY)}
    settings.FILES_URL = "http://127.0.0.1:2"
    (tmp_path / "folders/.backendai-storage.json").unlink()
    seed_storage(tmp_path)
    assert StorageHost.objects.get().address == "http://127.0.0.1:2"
    assert os.listdir(tmp_path / "folders") == [], "an empty directory later on is a share that is not mounted"
    host.delete()
    seed_storage(tmp_path)
    assert not StorageHost.objects.exists(), "what an administrator has deleted stays so"


def test_a_host_of_another_platform_is_named_with_the_way_to_its_folders(tmp_path: Path) -> None:
    root = prepare(tmp_path / "host")
    with pytest.raises(UserError, match=f"storage host local of deployment {DEPLOYMENT}.*adopt_folders"):
        prepare_host(root, Marker("d-new", "local", os.geteuid()))
    with pytest.raises(UserError, match="of this storage host already"):
        prepare_host(root, Marker(DEPLOYMENT, "local", os.geteuid()))


def test_doctor_looks_at_marker_room_and_network(
    tmp_path: Path, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DEPLOYMENT = DEPLOYMENT
    root = prepare(tmp_path / "host")
    (found,) = storage({"local": root})
    assert found.level in ("ok", "warning") and "GiB are free" in found.message
    (missing,) = storage({"other": tmp_path})
    assert missing.level == "problem" and "--prepare other" in missing.fix
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert file_system(root, mounts) == "nfs4"
    assert "nfs4" in storage({"local": root}, mounts)[-1].message
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert storage({"local": root})[-1].level == "problem"
    assert storage({})[0].level == "ok"
