"""What somebody told wrong is refused by bin/up before anything is started or made, by its name."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from backendai.ops.run import data_folder, up
from backendai.ops.run.console import Console
from backendai.ops.run.ports import PortClaims
from backendai.settings import environment
from backendai.settings.environment import RUNNING, WrongSetting

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("variable", "value", "limit"),
    [
        ("BACKENDAI_AGENT_SLOTS", "cpu=many", "not a number"),
        ("BACKENDAI_AGENT_RESERVE_MEM", "lots", "512m"),
        ("BACKENDAI_AGENT_RESERVE_CPU", "half", "not a number"),
        ("BACKENDAI_AGENT_BACKEND", "podman", "docker"),
        ("BACKENDAI_GATEWAY_PORT", "70000", "65535"),
        ("BACKENDAI_AGENT_CUDA", "half", "shares"),
        ("BACKENDAI_AGENT_WARM_NETWORKS", "many", "64"),
        ("BACKENDAI_AGENT_RUNTIME", "kata runtime", "runsc"),
        ("BACKENDAI_AGENT_RUNTIME_MEMORY", "lots", "512m"),
    ],
)
def test_it_refuses_what_its_agent_would_refuse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    limit: str,
) -> None:
    monkeypatch.setenv(variable, value)
    data = tmp_path / "data"
    assert up.main(["--data", str(data)]) == 1
    said = capsys.readouterr().err
    assert variable in said and value.rpartition("=")[2] in said and limit in said
    assert not data.exists()


def test_without_an_agent_here_its_settings_do_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BACKENDAI_AGENT_SLOTS", "cpu=many")
    options = up._parser().parse_args(["--data", str(tmp_path), "--no-agent"])
    with closing(PortClaims()) as claims:
        assert up._decide(options, claims).agents == 0


@pytest.mark.parametrize("host", ["no-such-name.invalid", "192.0.2.1"])
def test_it_refuses_an_address_that_is_not_this_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    data = tmp_path / "data"
    assert up.main(["--host", host, "--data", str(data)]) == 1
    assert f"--host {host}" in capsys.readouterr().err
    assert not data.exists()


def test_a_port_in_the_environment_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKENDAI_PORT", "abc")
    with pytest.raises(WrongSetting, match="BACKENDAI_PORT is 'abc': use a whole number from 0 to 65535"):
        up.main([])


def test_nothing_is_prepared_with_settings_that_cannot_work() -> None:
    with override_settings(SIGNUP="nonsense"), pytest.raises(SystemCheckError, match="BACKENDAI_SIGNUP cannot be"):
        call_command("prepare")


@pytest.mark.django_db
def test_a_database_from_before_version_1_is_refused_before_anything_is_changed() -> None:
    MigrationRecorder(connection).record_applied("compute", "0045_memory_kills")
    changes = mock.patch("backendai.ops.management.commands.prepare.call_command")
    with changes as called, pytest.raises(CommandError, match=r"made this database \(compute.0045_memory_kills\)"):
        call_command("prepare")
    called.assert_not_called()


def test_new_settings_are_looked_at_before_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = up.settings_stamp()
    assert up.settings_stamp() == before
    monkeypatch.setenv("BACKENDAI_SIGNUP", "nonsense")
    assert up.settings_stamp() != before


@pytest.mark.parametrize("line", [b"CommandError: 'many' is not a number.", b"SystemCheckError: System check ..."])
def test_the_terminal_shows_why_a_part_has_given_up(line: bytes) -> None:
    reader, writer = os.pipe()
    terminal = Console(writer, verbose=False)
    terminal.line("agent", b"2026-11-22 10:00:00,000 INFO agent: nothing to see")
    terminal.line("agent", line)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        assert told.read() == b"agent    | " + line + b"\n"


def test_what_a_start_has_decided_is_private_and_ends_with_it(tmp_path: Path) -> None:
    for port in ("8181", "8282"):
        data_folder.say_running(tmp_path, {"BACKENDAI_PORT": port})
    told = tmp_path / RUNNING
    assert json.loads(told.read_text()) == {"BACKENDAI_PORT": "8282"}
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    data_folder.say_stopped(tmp_path)
    data_folder.say_stopped(tmp_path)
    assert not told.exists()


def test_commands_believe_what_a_start_has_decided_until_it_ends_even_by_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKENDAI_DATA", str(tmp_path))
    monkeypatch.delenv("BACKENDAI_PORT", raising=False)
    code = (
        "import sys; from pathlib import Path; from backendai.ops.run.data_folder import say_running\n"
        f"say_running(Path({str(tmp_path)!r}), {{'BACKENDAI_PORT': '8181'}}); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline()
        environment.read_files()
        assert os.environ["BACKENDAI_PORT"] == "8181"
        monkeypatch.delenv("BACKENDAI_PORT")
        running.kill()
    assert (tmp_path / RUNNING).exists()
    environment.read_files()
    assert "BACKENDAI_PORT" not in os.environ


def test_the_example_lists_every_variable_that_is_read_and_no_other() -> None:
    listed = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    reading = re.compile(r'(?:told\.\w+|whole|(?<!spec\.)environ(?:\.get)?|_check_choice)[\[(]\s*"(BACKENDAI_\w+)"')
    code = [path.read_text() for path in (ROOT / "backendai").rglob("*.py")]
    read = {name for text in code for name in reading.findall(text)}
    assert len(read) > 50
    assert read - listed == set()
    others = [ROOT / "docker-compose.yml", ROOT / "bin" / "test", *(ROOT / "tests").rglob("*.py")]
    code += [path.read_text() for path in others]
    assert [name for name in sorted(listed) if not any(name in text for text in code)] == []
