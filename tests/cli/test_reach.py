"""Ways into sessions for other programs: the configuration of ssh, and addresses that every program knows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bai.__main__ import run
from tests.cli.stub import stub_portal

ID = "0b1f7d1e-6b0f-4f0f-9a52-6d3a2e1f0c11"
BLOCKS = "".join(f"Host {name}\n    HostName gate\n    Port 2222\n    User {name}\n" for name in ("folders", "desk"))
CONFIG = {"config": BLOCKS, "known_hosts": "[gate]:2222 ssh-ed25519 AAAA"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "a home"
    for name, value in {"HOME": home, "XDG_CONFIG_HOME": home / "config", "XDG_CACHE_HOME": home / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("BAI_TOKEN", "secret")
    return home


def test_ssh_knows_the_sessions_and_is_the_same_for_every_other_host(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = home / "dotfiles"
    kept.mkdir(parents=True)
    (kept / "config").write_text("Host own\n    User me\n")
    (home / ".ssh").mkdir()
    (home / ".ssh/config").symlink_to(kept / "config")
    with stub_portal((200, CONFIG)) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["ssh-config", "--write"]) == run(["ssh-config", "--write"]) == 0
    assert (home / ".ssh/config").is_symlink()
    assert (kept / "config").read_text().count("Include ") == 1
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")

    def option(host: str) -> str:
        said = subprocess.run(["ssh", "-G", "-F", kept / "config", host], capture_output=True, text=True, check=True)
        return next(line for line in said.stdout.splitlines() if line.startswith("userknownhostsfile"))

    known = home / "config/bai/known_hosts"
    assert str(known) in option("desk") and str(known) in option("folders")
    assert str(known) not in option("own") and str(known) not in option("github.com")


def test_a_jupyterlab_is_told_the_address_that_every_resolver_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = {"name": "jupyterlab", "url": "http://j.apps.localhost:1", "program_url": "http://host:1/apps/1/jupyterlab"}
    session = {"id": ID, "name": "desk", "status": "RUNNING"}
    with stub_portal((200, session), (200, {"results": [app]})) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["jupyter", ID]) == 0
    assert "JUPYTER_GATEWAY_URL=http://host:1/apps/1/jupyterlab\n" in capsys.readouterr().out


def test_an_endpoint_is_listed_with_the_address_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"id": "1", "name": "chat", "url": "http://chat.apps.localhost:1", "program_url": "http://host:1/endpoints/c"}
    with stub_portal((200, {"results": [one]})) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["endpoint", "ls"]) == 0
    assert "\thttp://host:1/endpoints/c\t" in capsys.readouterr().out
