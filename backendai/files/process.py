"""The command line of a file server: ``python -m backendai.files``, or ``manage.py file_server``."""

from __future__ import annotations

import logging
import os
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.paths.storage_layout import MARKER, Marker, StorageMissing, read_marker, write_marker
from backendai.base.process.open_files import raise_open_files
from backendai.files.config import FilesSettings, read_settings
from backendai.files.http.server import serve

logger = logging.getLogger(__name__)

KERNELS_USER = 1000  # the user of kernels in containers, and in the sandbox of an agent of root


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--prepare", metavar="HOST", help="write the marker of a new storage host, and exit")
    parser.add_argument("--uid", type=int, help=f"with --prepare: owner of the files ({KERNELS_USER} as root)")
    parser.add_argument("--once", type=Path, metavar="FILE", help="with --prepare: do nothing if this file exists")


def run(options: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT, or prepare a host. Raises UserError."""
    settings = read_settings(environ)
    if options.get("prepare"):
        _prepare(settings, options["prepare"], options.get("uid"), options.get("once"))
        return
    raise_open_files()
    try:
        uvloop.run(serve(settings))
    except OSError as error:
        raise UserError(
            "{address} cannot be listened on: {error}.",
            address=f"{settings.address}:{settings.port}",
            error=error.strerror,
            field="BACKENDAI_FILES_BIND",
        ) from error
    os._exit(0)  # a normal exit would wait for threads that a disk blocks


def prepare_host(root: Path, marker: Marker) -> None:
    """Turn an existing directory into a storage host: write its marker, and set the files' owner. Raises UserError."""
    if not root.is_dir():
        raise UserError("{root} is not a directory: mount the share, or make the directory, first.", root=root)
    try:
        write_marker(root, marker)
        if os.geteuid() == 0:
            os.chown(root, marker.uid, marker.uid)
        root.chmod(0o711)  # engines need to traverse it on root-squashed shares
    except FileExistsError as error:
        raise UserError(_why_prepared(root, marker)) from error
    except OSError as error:
        raise UserError("{root} cannot be prepared: {error}.", root=root, error=error.strerror) from error


def _why_prepared(root: Path, marker: Marker) -> Message:
    try:
        read_marker(root, host=marker.host, deployment=marker.deployment)
    except StorageMissing as error:
        return Message(
            "{root} has a {marker} already. {error} To use its folders in this platform, delete the file and run "
            "manage.py adopt_folders --write.",
            root=root,
            marker=MARKER,
            error=str(error),
        )
    return Message("{root} has the {marker} of this storage host already.", root=root, marker=MARKER)


def _prepare(settings: FilesSettings, name: str, uid: int | None, once: Path | None) -> None:
    if once is not None and once.exists():
        return
    if name not in settings.hosts:
        text = "{name} is not in BACKENDAI_STORAGE_HOSTS, which names {known}."
        raise UserError(text, name=name, known=list(settings.hosts))
    _, deployment = settings.keys()
    owner = uid if uid is not None else owner_here()
    prepare_host(settings.hosts[name], Marker(deployment, name, owner))
    logger.info("%s is the storage host %s now; its files belong to the user %s", settings.hosts[name], name, owner)
    if once is not None:
        once.touch()


def owner_here() -> int:
    """Return the files' owner on new storage hosts: the user of kernels if root, else this process's user."""
    return os.geteuid() or KERNELS_USER
