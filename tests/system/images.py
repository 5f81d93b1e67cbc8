"""Images for tests on the real engine, made from this machine's static busybox."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from docker import APIClient
from docker.errors import ImageNotFound

TINY = "local/backendai-tiny:latest"
STILLBORN = "local/backendai-test:stillborn"
_BUILD_TINY = Path(__file__).resolve().parents[2] / "images/tiny/build"
_DEAD_SHELL = b"#!/bin/busybox false\n"


def ensure_tiny(engine_url: str | None = None) -> None:
    """Make the 2 MB image that the repository builds, unless the engine has it."""
    told = {"DOCKER_HOST": engine_url} if engine_url else {}
    client = APIClient(base_url=engine_url)
    if not _has(client, TINY):
        subprocess.run([_BUILD_TINY, TINY], check=True, capture_output=True, env=os.environ | told)
    client.close()


def ensure_stillborn() -> str:
    """Return the reference of an image whose shell ends at once with exit code 1, imported if it is not there."""
    client = APIClient()
    if not _has(client, STILLBORN):
        repository, _, tag = STILLBORN.partition(":")
        client.import_image_from_data(_dead_files(), repository=repository, tag=tag, changes=["ENV PATH=/bin"])
    client.close()
    return STILLBORN


def _has(client: APIClient, reference: str) -> bool:
    try:
        client.inspect_image(reference)
    except ImageNotFound:
        return False
    return True


def _dead_files() -> bytes:
    busybox = shutil.which("busybox")
    assert busybox, "install busybox-static"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        shell = tarfile.TarInfo("bin/sh")
        shell.mode, shell.size = 0o755, len(_DEAD_SHELL)
        tar.addfile(shell, io.BytesIO(_DEAD_SHELL))
    return buffer.getvalue()
