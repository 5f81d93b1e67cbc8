"""What the environment says: empty is not told, and a wrong value is named instead of a traceback or a guess."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backendai.ops.run.data_folder import say_running
from backendai.settings import environment
from backendai.settings.environment import WrongSetting

ROOT = Path(__file__).parents[2]
NAME = "BACKENDAI_OF_A_TEST"


def port() -> int:
    return environment.whole(NAME, 8080, least=1, most=65535)


def seconds() -> float:
    return environment.number(NAME, 5.0, least=0.05, most=60)


def is_on() -> bool:
    return environment.switch(NAME)


def level() -> str:
    return environment.choice(NAME, ("DEBUG", "INFO"), "INFO")


def zone() -> str:
    return environment.time_zone(NAME, "UTC")


def database() -> object:
    return environment.database(NAME, "sqlite:////srv/portal.sqlite3")["NAME"]


READERS: list[tuple[Callable[[], object], object]] = [
    (port, 8080),
    (seconds, 5.0),
    (is_on, False),
    (level, "INFO"),
    (zone, "UTC"),
    (database, "/srv/portal.sqlite3"),
    (lambda: environment.words(NAME, ["*"]), ["*"]),
    (lambda: environment.text(NAME, "d-1"), "d-1"),
]


@pytest.mark.parametrize(("read", "default"), READERS)
@pytest.mark.parametrize("told", [None, ""])
def test_what_is_not_told_or_empty_has_its_default(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object], default: object, told: str | None
) -> None:
    if told is None:
        monkeypatch.delenv(NAME, raising=False)
    else:
        monkeypatch.setenv(NAME, told)
    assert read() == default


@pytest.mark.parametrize(
    ("read", "told", "found"),
    [
        (port, "65535", 65535),
        (seconds, "0.5", 0.5),
        (is_on, "1", True),
        (is_on, "Yes", True),
        (is_on, "off", False),
        (level, "debug", "DEBUG"),
        (zone, "Asia/Seoul", "Asia/Seoul"),
        (database, "postgres://user:word@host:5432/portal", "portal"),
    ],
)
def test_it_reads_what_is_told(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object], told: str, found: object
) -> None:
    monkeypatch.setenv(NAME, told)
    assert read() == found


@pytest.mark.parametrize(
    ("read", "told", "limit"),
    [
        (port, "abc", "from 1 to 65535"),
        (port, "0", "from 1 to 65535"),
        (port, "65536", "from 1 to 65535"),
        (port, "10g", "from 1 to 65535"),
        (seconds, "5s", "from 0.05 to 60"),
        (seconds, "nan", "from 0.05 to 60"),
        (seconds, "-1", "from 0.05 to 60"),
        (is_on, "ture", "1 or 0"),
        (level, "loud", "DEBUG, INFO"),
        (zone, "Mars/Olympus", "Europe/Berlin"),
        (zone, "../etc", "Europe/Berlin"),
    ],
)
def test_a_wrong_value_is_named_with_its_limit(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object], told: str, limit: str
) -> None:
    monkeypatch.setenv(NAME, told)
    with pytest.raises(WrongSetting) as refusal:
        read()
    said = str(refusal.value)
    assert NAME in said and repr(told) in said and limit in said


@pytest.mark.parametrize("told", ["nonsense", "postgres://user:secret-word@host", "mysql://user:secret-word@host/name"])
def test_a_wrong_database_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv(NAME, told)
    with pytest.raises(WrongSetting) as refusal:
        database()
    assert NAME in str(refusal.value) and "secret-word" not in str(refusal.value)


def test_a_command_ends_with_the_sentence_and_nothing_else(tmp_path: Path) -> None:
    told = {**os.environ, "BACKENDAI_DATA": str(tmp_path), "BACKENDAI_RATE_API": "often"}
    told.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, str(ROOT / "manage.py"), "create_token", "a@example.com"]
    ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "ERROR: BACKENDAI_RATE_API is 'often': use a whole number from 0 to 1000000000.\n"


def test_commands_know_what_the_running_platform_was_told(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BACKENDAI_PORT=8080\nBACKENDAI_HOST=10.0.0.1\nBACKENDAI_RATE_API=7\n")
    (tmp_path / "var").mkdir()
    say_running(tmp_path / "var", {"BACKENDAI_PORT": "8181", "BACKENDAI_HOST": "127.0.0.1"})
    names = ("PORT", "HOST", "RATE_API")
    told = {name: value for name, value in os.environ.items() if not name.startswith("BACKENDAI_")}
    program = f"""
import os, pathlib
from backendai.base.paths import installation
from backendai.settings import environment
installation.FILES = pathlib.Path({str(tmp_path)!r})
environment.read_files()
print(*(os.environ["BACKENDAI_" + name] for name in {names!r}))
"""
    said = subprocess.check_output(
        [sys.executable, "-c", program], env={**told, "BACKENDAI_HOST": "10.0.0.2"}, cwd=ROOT, text=True
    )
    assert said.split() == ["8181", "10.0.0.2", "7"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--help"], "    agent\n"), (["help", "agent"], "Run an agent on this machine.")],
)
def test_the_help_knows_the_commands_of_nodes(tmp_path: Path, words: list[str], said: str) -> None:
    told = {**os.environ, "BACKENDAI_DATA": str(tmp_path)}
    told.pop("DJANGO_SETTINGS_MODULE", None)
    assert said in subprocess.check_output([sys.executable, str(ROOT / "manage.py"), *words], env=told, text=True)
