"""Reads from the environment what differs between installations. An empty value means "not told", as in a copied
``.env.example``; one that cannot be used ends the process with a sentence that names it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import environ

from backendai.base.paths.installation import data_folder, dotenv_folder

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_JSON, _TEXT = "JSON", "TEXT"
_SYSLOG = "syslog:"
RUNNING = "running.json"  # in the data folder: what bin/up has decided, while it runs

_env = environ.Env()
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_DATABASES = ("postgres://", "postgresql://", "sqlite://")


class WrongSetting(SystemExit):
    """Not an ordinary exception: whatever process reads the settings ends with the sentence, without a traceback."""

    def __init__(self, name: str, value: str, use: str) -> None:
        super().__init__(f"ERROR: {name} is {value}: use {use}.")


def read_dotenv(told: Mapping[str, str] = os.environ) -> None:
    """Add to the environment what ``.env`` says and it does not; ``told`` names the data folder."""
    environ.Env.read_env(dotenv_folder(told) / ".env")


def read_files() -> None:
    """Add to the environment what it does not have: what the running platform was started with, and ``.env``."""
    told = set(os.environ)
    read_dotenv()
    running = _running(data_folder(os.environ))
    os.environ.update({name: value for name, value in running.items() if name not in told})


def text(name: str, default: str = "") -> str:
    """Return a text."""
    return str(_env.str(name, default="")) or default


def words(name: str, default: Sequence[str] = ()) -> list[str]:
    """Return texts that are separated by commas."""
    return [word.strip() for word in text(name).split(",") if word.strip()] or list(default)


def whole(name: str, default: int, *, least: int = 0, most: int) -> int:
    """Return a whole number within its limits."""
    told = text(name).strip()
    if not told:
        return default
    if not told.isascii() or not told.removeprefix("-").isdigit() or not least <= int(told) <= most:
        raise WrongSetting(name, repr(told), f"a whole number from {least} to {most}")
    return int(told)


def number(name: str, default: float, *, least: float, most: float) -> float:
    """Return a number within its limits."""
    told = text(name).strip()
    try:
        found = float(told) if told else default
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise WrongSetting(name, repr(told), f"a number from {least:g} to {most:g}")
    return found


def switch(name: str) -> bool:
    """Return whether something is on; nobody shall believe that it is because of a slip of the pen."""
    told = text(name).strip().lower()
    if told and told not in (*_TRUE, *_FALSE):
        raise WrongSetting(name, repr(told), "1 or 0")
    return told in _TRUE


def choice(name: str, choices: Sequence[str], default: str) -> str:
    """Return one of the words, which may be written in small letters."""
    told = text(name, default).strip().upper()
    if told not in choices:
        raise WrongSetting(name, repr(text(name)), f"one of {', '.join(choices)}")
    return told


def log_shape(name: str, text_shape: str) -> dict[str, Any]:
    """Return the formatter of log lines: ``text_shape``, or JSON."""
    is_json = choice(name, (_TEXT, _JSON), _TEXT) == _JSON
    return {"()": "backendai.base.process.json_logs.JsonLines"} if is_json else {"format": text_shape}


def audit_handler(name: str) -> dict[str, Any] | None:
    """Return the logging handler for copies of audit entries: ``syslog:/dev/log``, ``syslog:host:port`` or a file."""
    told = text(name)
    if not told:
        return None
    if told.startswith("/"):
        return {"class": "logging.handlers.WatchedFileHandler", "filename": told, "delay": True, "formatter": "audit"}
    host, _, port = told.removeprefix(_SYSLOG).rpartition(":")
    address = told.removeprefix(_SYSLOG) if not host else (host.strip("[]"), int(port)) if port.isdigit() else ""
    if not told.startswith(_SYSLOG) or not address or (isinstance(address, str) and not address.startswith("/")):
        raise WrongSetting(name, repr(told), "syslog:/dev/log, syslog:host:514 or the absolute path of a file")
    return {"class": "logging.handlers.SysLogHandler", "address": address, "formatter": "audit"}


def time_zone(name: str, default: str) -> str:
    """Return the name of a time zone."""
    told = text(name, default)
    try:
        ZoneInfo(told)
    except (KeyError, ValueError, OSError):
        raise WrongSetting(name, repr(told), "a name such as Europe/Berlin") from None
    return told


def database(name: str, default: str) -> dict[str, Any]:
    """Return what Django wants to know of a database. Its address is not repeated: it may hold a password."""
    told = text(name, default)
    try:
        found = dict(_env.db_url_config(told)) if told.startswith(_DATABASES) else {}
    except ValueError:
        found = {}
    if not found.get("NAME"):
        raise WrongSetting(name, "no address of a database", "postgres://user:password@host:5432/name or leave it out")
    return found


def _running(data: Path) -> dict[str, str]:
    """Return what ``bin/up`` has decided, as long as it holds its file: one that was killed leaves it behind."""
    try:
        with (data / RUNNING).open() as told:
            try:
                fcntl.flock(told, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return dict(json.load(told))
    except (OSError, ValueError):
        pass
    return {}
