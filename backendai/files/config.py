"""Reads the settings of a file server from its environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backendai.base.core.errors import UserError
from backendai.base.paths.installation import data_folder
from backendai.base.process.metrics_access import NOBODY, Scrapers, read_scrapers

DEFAULT_BIND = "127.0.0.1:8093"
KEY_FILE = "file-server.json"  # in the data folder of bin/up; deployment and public key are not secret
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\Z")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """The settings of one file server: its hosts with their paths, and the key that verifies tickets."""

    hosts: Mapping[str, Path]
    address: str
    port: int
    linkable: tuple[Path, ...]
    key_file: Path
    public_key: str
    deployment: str
    scrapers: Scrapers = NOBODY

    def keys(self) -> tuple[str, str]:
        """Return public key and deployment from the settings, else from the key file. Raises UserError."""
        if self.public_key:
            return self.public_key, self.deployment
        try:
            content = json.loads(self.key_file.read_text())
            return str(content["public_key"]), self.deployment or str(content["deployment"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                "{path} cannot be read ({error}). Copy it from the portal's data folder, or set "
                "BACKENDAI_FILES_PUBLIC_KEY and BACKENDAI_DEPLOYMENT.",
                path=self.key_file,
                error=str(error),
                field="BACKENDAI_FILES_KEY_FILE",
            ) from error


def read_settings(environ: Mapping[str, str]) -> FilesSettings:
    """Return the settings from the environment. Raises UserError with the name of an invalid variable."""
    data = data_folder(environ)
    hosts = read_hosts(environ.get("BACKENDAI_STORAGE_HOSTS", "")) or {"local": data / "folders"}
    address, port = read_bind(environ.get("BACKENDAI_FILES_BIND", "") or DEFAULT_BIND)
    return FilesSettings(
        hosts=hosts,
        address=address,
        port=port,
        linkable=read_linkable(environ.get("BACKENDAI_FILES_LINKED_PATHS", "")),
        key_file=Path(environ.get("BACKENDAI_FILES_KEY_FILE", "") or data / KEY_FILE),
        public_key=environ.get("BACKENDAI_FILES_PUBLIC_KEY", "").replace("\\n", "\n"),
        deployment=environ.get("BACKENDAI_DEPLOYMENT", ""),
        scrapers=read_scrapers(environ),
    )


def read_hosts(text: str) -> dict[str, Path]:
    """Return the paths of storage hosts by name, from ``name=/path,name=/path``."""
    hosts: dict[str, Path] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, path = word.partition("=")
        if not _HOST.match(name) or not path.startswith("/") or ".." in Path(path).parts or name in hosts:
            text = "BACKENDAI_STORAGE_HOSTS: {word} cannot be used: write name=/absolute/path, each name once."
            raise UserError(text, word=repr(word), field="BACKENDAI_STORAGE_HOSTS")
        hosts[name] = Path(path)
    return hosts


def read_bind(text: str) -> tuple[str, int]:
    """Return address and port from ``address:port``. Raises UserError."""
    address, _, port = text.rpartition(":")
    if not address or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= _LAST_PORT:
        message = "BACKENDAI_FILES_BIND: {word} cannot be used: write address:port, such as {example}."
        raise UserError(message, word=repr(text), example=DEFAULT_BIND, field="BACKENDAI_FILES_BIND")
    return address.strip("[]"), int(port)


def read_linkable(text: str) -> tuple[Path, ...]:
    """Return the paths below which existing directories can become folders, from ``/path,/path``."""
    paths = [Path(word.strip()) for word in text.split(",") if word.strip()]
    for path in paths:
        if not path.is_absolute() or ".." in path.parts or path == Path(os.sep):
            message = "BACKENDAI_FILES_LINKED_PATHS: {path} cannot be used: write absolute paths, not '/'."
            raise UserError(message, path=repr(str(path)), field="BACKENDAI_FILES_LINKED_PATHS")
    return tuple(paths)
