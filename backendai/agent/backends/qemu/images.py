"""Images as file systems of virtual machines: one squashfs per image, created when a kernel first needs it.

Images come from this machine's Docker Engine, if there is one, else from a registry. A file system is named by the
image's id, and created under another name first, so that an interrupted build is never used.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import NOBODY, BackendError, Fetched, ImageNotFound, Progress
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.images import DockerImages, pull_refusal
from backendai.agent.backends.qemu.layers import ArchiveLayers
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.agent.backends.shared.trees import remove_tree
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting

_PREFIX = ".draft-"
_NEW_SECONDS = 60.0  # an agent locks its folder directly after creating it


@contextlib.contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder below ``parent``, and delete it at the end. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as made, _opened(Path(made)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(made)


def sweep_drafts(parent: Path) -> None:
    """Delete the folders that killed agents have left. Several agents may share ``parent``."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _opened(folder) as lock:  # an OSError: it is locked or gone
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
                remove_tree(folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield lock
    finally:
        os.close(lock)


logger = logging.getLogger(__name__)

_UNUSED_SECONDS = 7 * 24 * 3600.0
_MAKE_SECONDS, _LOOK_SECONDS = 1800.0, 0.5
_BEING_FETCHED = Fetched(None, "The image is being fetched.")
_NOT_MADE = "The file system of the image cannot be made: {error}"


@dataclass(frozen=True, slots=True)
class QemuImage:
    """The file system of an image, and its configuration."""

    file: Path
    about: dict[str, Any]

    @property
    def environ(self) -> dict[str, str]:
        """The image's environment variables."""
        pairs = [entry.partition("=") for entry in self.about.get("environ") or []]
        return {name: value for name, _, value in pairs if name}

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels."""
        return dict(self.about.get("labels") or {})

    def definition(self, service: str) -> bytes | None:
        """Return the definition file of a service."""
        text = (self.about.get("definitions") or {}).get(service)
        return text.encode() if isinstance(text, str) else None


class QemuImages:
    """One agent's images. The agents of a machine can share ``cache``."""

    def __init__(self, engine: Engine, tools: QemuTools, cache: Path) -> None:
        self._engine, self._tools, self._folder = engine, tools, cache / "images"
        self._docker = DockerImages(engine)
        self._making = threading.Lock()

    def sightings(self) -> list[ImageSighting]:
        """Return the engine's images, and those that were pulled without it."""
        found = {one.reference: one for one in self._of_engine()}
        for reference, known in self._references().items():
            is_here = (self._folder / f"{known}.squashfs").exists()
            if reference not in found and is_here and (about := self._about(known)):
                found[reference] = ImageSighting(
                    reference=reference,
                    digest=reference.partition("@")[2],
                    architecture=about.get("architecture") or "",
                    size_bytes=int(about.get("size") or 0),
                    labels={key: value for key, value in about["labels"].items() if key.startswith("ai.backend.")},
                )
        return list(found.values())

    def has(self, reference: str) -> bool:
        """Return whether ``make`` would find the image."""
        known = self._references().get(reference)
        if known and (self._folder / f"{known}.squashfs").exists():
            return True
        return self._id_in_engine(reference) is not None

    def make(self, reference: str) -> QemuImage:
        """Return the image's file system; creates it if needed (seconds per GB). Raises ImageNotFound, BackendError."""
        known = self._id_in_engine(reference) or self._references().get(reference)
        if known is None:
            raise ImageNotFound("{image} is neither here nor was it pulled.", image=reference)
        file = self._folder / f"{known}.squashfs"
        if not self._is_made(file, known):
            with self._making:
                if not self._is_made(file, known):
                    with self._saved(reference) as archive:
                        self._convert(archive, known)
        with contextlib.suppress(OSError):
            os.utime(file)
        return QemuImage(file, self._about(known))

    def _is_made(self, file: Path, known: str) -> bool:
        return file.exists() and bool(self._about(known))

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        """Pull an image with the Docker Engine, else with skopeo. Raises ImageNotFound, BackendError."""
        if self._has_engine():
            self._docker.pull(reference, timeout=timeout, progress=progress, access=access)
            return
        progress(_BEING_FETCHED)
        try:
            self._pull(reference, timeout, progress, access)
        except OSError as error:  # such as a full disk
            raise BackendError(_NOT_MADE, error=str(error)) from error
        progress(Fetched(1.0, "The image is here."))

    def _pull(self, reference: str, timeout: float, progress: Progress, access: RegistryAccess) -> None:
        with draft_folder(self._folder) as folder:
            archive = folder / "image.tar"
            self._fetch(reference, archive, timeout, progress, access)
            progress(Fetched(0.9, "The file system of the image is being made."))
            with ArchiveLayers(archive) as layers:
                known = hashlib.sha256(json.dumps(layers.config, sort_keys=True).encode()).hexdigest()
            with self._making:
                self._convert(archive, known)
                self._remember(reference, known)

    def sweep(self) -> None:
        """Delete file systems that no kernel has used for a week (running kernels keep theirs open), and unfinished
        ones of killed agents."""
        sweep_drafts(self._folder)
        for file in self._folder.glob("*.squashfs") if self._folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > _UNUSED_SECONDS:
                    file.unlink()

    def _convert(self, archive: Path, known: str) -> None:
        """Create the image's file system, beside the archive at first. Raises BackendError."""
        draft = archive.with_name("image.squashfs")
        command = [self._tools.need("sqfstar"), "-comp", "lz4", "-no-progress", "-exit-on-error", str(draft)]
        try:
            with ArchiveLayers(archive) as layers:
                self._write(layers, command)
                about = _described(layers)
            write_whole(self._folder / f"{known}.json", json.dumps(about))
            draft.chmod(0o644)
            draft.replace(self._folder / f"{known}.squashfs")
        except (OSError, ValueError, LookupError, tarfile.TarError, subprocess.TimeoutExpired) as error:
            raise BackendError(_NOT_MADE, error=str(error)) from error

    def _write(self, layers: ArchiveLayers, command: list[str]) -> None:
        """Run the command with the layers' files as input. Its stderr goes to a file, as a full pipe would block it."""
        with tempfile.TemporaryFile() as complaints:
            maker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints, env=self._tools.environ()
            )
            assert maker.stdin is not None
            try:
                with contextlib.suppress(BrokenPipeError):
                    layers.write(maker.stdin)
                    maker.stdin.close()
                status = maker.wait(_MAKE_SECONDS)
            except BaseException:
                maker.kill()
                maker.wait()
                raise
            if status:
                complaints.seek(0)
                raise BackendError(_NOT_MADE, error=complaints.read().decode(errors="replace").strip()[-300:])

    @contextlib.contextmanager
    def _saved(self, reference: str) -> Iterator[Path]:
        """Yield the path of the engine's archive of the image."""
        with draft_folder(self._folder) as folder:
            archive = folder / "image.tar"
            with self._engine.asking() as client, archive.open("wb") as output:
                for piece in client.get_image(reference):
                    output.write(piece)
            yield archive

    def _fetch(self, reference: str, archive: Path, timeout: float, progress: Progress, access: RegistryAccess) -> None:
        command = [self._tools.need("skopeo"), "--insecure-policy", "copy", "--quiet"]
        if access.username:
            command += ["--authfile", str(_account(archive.with_name("auth.json"), reference, access))]
        if _is_here(reference):  # like the Docker Engine
            command.append("--src-tls-verify=false")
        command += [f"docker://{reference}", f"docker-archive:{archive}"]
        until = time.monotonic() + timeout
        with tempfile.TemporaryFile("w+") as complaints:
            copying = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=complaints, env=self._tools.environ())
            try:
                while copying.poll() is None:
                    progress(_BEING_FETCHED)
                    if time.monotonic() > until:
                        text = "Pulling the image {reference} took longer than {timeout} seconds."
                        raise BackendError(text, reference=reference, timeout=f"{timeout:.0f}", code="pull-timeout")
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        copying.wait(_LOOK_SECONDS)
            finally:
                copying.kill()
                copying.wait()
            if copying.returncode:
                complaints.seek(0)
                raise pull_refusal(reference, _words_of(complaints.read()))

    def _of_engine(self) -> list[ImageSighting]:
        return self._docker.sightings() if self._has_engine() else []

    def _id_in_engine(self, reference: str) -> str | None:
        """Return the engine's id of the image; None if it is missing. Raises BackendError if the engine does not
        answer."""
        if not self._has_engine():
            return None
        with self._engine.asking():
            image = self._engine.image(reference)
        return str(image["Id"]).removeprefix("sha256:") if image else None

    def _has_engine(self) -> bool:
        path = self._engine.socket_path
        return path is None or Path(path).exists()

    def _references(self) -> dict[str, str]:
        return self._about("references")

    def _remember(self, reference: str, known: str) -> None:
        write_whole(self._folder / "references.json", json.dumps(self._references() | {reference: known}))

    def _about(self, known: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self._folder / f"{known}.json").read_bytes()))
        except (OSError, ValueError):
            return {}


def write_whole(path: Path, text: str) -> None:
    """Write the file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(text)
    draft.replace(path)


def _described(layers: ArchiveLayers) -> dict[str, Any]:
    config = layers.config.get("config") or {}
    definitions = {name: content.decode(errors="replace") for name, content in layers.definitions()}
    return {
        "environ": config.get("Env") or [],
        "labels": config.get("Labels") or {},
        "architecture": layers.config.get("architecture") or "",
        "definitions": definitions,
    }


def _words_of(said: str) -> str:
    """Return the last message of skopeo's output, else all of it; at most 300 characters."""
    found = re.search(r'msg="(.*)"\s*\Z', said.strip())
    return (found[1] if found else said.strip())[-300:].replace("StatusCode: 404", "not found")


def _is_here(reference: str) -> bool:
    """Return whether the registry is on this machine."""
    return reference.partition("/")[0].partition(":")[0] in ("localhost", "127.0.0.1")


def _account(path: Path, reference: str, access: RegistryAccess) -> Path:
    """Write the account to a private file, as every user can see arguments."""
    registry = reference.partition("/")[0]
    secret = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
    path.touch(mode=0o600)
    path.write_text(json.dumps({"auths": {registry: {"auth": secret}}}))
    return path
