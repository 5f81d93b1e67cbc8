"""Creates images from kernels: the kernel's writes as one more layer on its image, and nothing else.

The engine's own commit copies the container's variables and labels into the image. So the image gets the commit's
layers with the configuration of the kernel's image and the owner's labels. If the engine does not accept a
configuration for existing layers, the commit itself is used, with all variables and labels of the session emptied; it
is checked and deleted if any of them is left.
"""

from __future__ import annotations

import io
import json
import logging
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from docker import APIClient, auth
from docker.errors import APIError, NotFound
from docker.utils import parse_repository_tag

from backendai.agent.backends.base import CommitFailed, Fetched, KernelGone, Progress, SavedImage
from backendai.agent.backends.docker.engine import PREFIX, Engine, words_of
from backendai.agent.backends.docker.images import progress_of
from backendai.agent.backends.docker.state import is_alive
from backendai.agent.backends.docker.stream import engine_messages
from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.base.wire.images import DEPLOYMENT_LABEL, ID_LABEL, CommitSpec

logger = logging.getLogger(__name__)

_SILENCE_SECONDS = 120.0
_PARTS = ("Config", "ContainerConfig")  # older engines also save the container's configuration


class DockerCommits:
    """Creates images from kernels, pushes and deletes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock, self._working = threading.Lock(), 0

    def make(self, spec: CommitSpec) -> SavedImage:
        """Return the image; creates it unless it was created before."""
        with self._at_work(), self._engine.asking(seconds=spec.timeout) as client:
            image = self._found(spec)
            if image is None:
                self._make(client, spec)
                image = self._found(spec)
        if image is None:
            raise CommitFailed(Message("The container engine lost the new image."))
        return SavedImage(size_bytes=int(image["Size"]))

    def push(self, spec: CommitSpec, progress: Progress) -> str:
        """Push the image to its registry; returns the manifest's digest. A repetition is cheap."""
        repository, tag = parse_repository_tag(spec.reference)
        account = {"username": spec.access.username, "password": spec.access.password}
        layers: dict[str, tuple[int, int]] = {}
        digest = ""
        with self._engine.asking() as client:
            version = client.api_version
        path = f"/v{version}/images/{quote(repository, safe='/:')}/push?{urlencode({'tag': tag or 'latest'})}"
        headers = {"X-Registry-Auth": auth.encode_header(account).decode()}
        pushed = Fetched(None, "")
        try:
            with closing(engine_messages(self._engine.url, path, headers, silence=_SILENCE_SECONDS)) as messages:
                for message in messages:
                    if "error" in message:
                        words_of_it = Message("The registry rejected the image: {message}", message=message["error"])
                        raise CommitFailed(words_of_it, code="push-failed")
                    digest = (message.get("aux") or {}).get("Digest", digest)
                    pushed = _pushed(layers, message) if message else pushed
                    progress(pushed)
        except TimeoutError as error:
            text = Message(
                "Pushing was interrupted: no progress for {silence_seconds} seconds.",
                silence_seconds=f"{_SILENCE_SECONDS:.0f}",
            )
            raise CommitFailed(text, code="push-failed") from error
        if not digest:
            raise CommitFailed(Message("The registry did not confirm the image."), code="push-failed")
        return digest

    def drop(self, reference: str) -> bool:
        """Delete an image that this deployment saved; returns whether it is gone. Leaves other images alone, and an
        image that a container uses stays."""
        with self._engine.asking() as client:
            try:
                labels = client.inspect_image(reference)["Config"].get("Labels") or {}
                if labels.get(DEPLOYMENT_LABEL) != self._engine.deployment:
                    logger.warning("%s is not an image that this deployment made of a kernel: it stays", reference)
                    return False
                client.remove_image(reference)
            except NotFound:
                return True
            except APIError as error:
                if error.status_code != 409:
                    raise
                logger.info("%s stays for now: %s", reference, words_of(error))
                return False
        return True

    def sweep(self) -> None:
        """Delete intermediate images of a crashed agent, as they may contain the session's variables."""
        with self._lock:
            if self._working:
                return
            label = f"{DEPLOYMENT_LABEL}={self._engine.deployment}"
            with self._engine.asking() as client:
                for image in client.images(filters={"dangling": True, "label": [label]}):
                    _forget(client, image["Id"])

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def _found(self, spec: CommitSpec) -> dict[str, Any] | None:
        image = self._engine.image(spec.reference)
        labels = image["Config"].get("Labels") or {} if image else {}
        return image if labels.get(ID_LABEL) == spec.labels.get(ID_LABEL) else None

    def _make(self, client: APIClient, spec: CommitSpec) -> None:
        container = self._container(client, spec)
        base = client.inspect_image(container["Image"])
        made = client.commit(container["Id"], conf=_emptied(base, container, spec.labels))["Id"]
        try:
            try:
                self._load(client, _archive(base, client.inspect_image(made), spec))
            except APIError as error:
                logger.info(
                    "the engine takes no configuration alone, so the commit itself is kept: %s", words_of(error)
                )
                self._keep(client, made, base, spec)
        finally:
            _forget(client, made)

    def _container(self, client: APIClient, spec: CommitSpec) -> dict[str, Any]:
        found = self._engine.find(spec.kernel_id)
        if found is None or found["Config"]["Labels"].get(f"{PREFIX}generation") != str(spec.generation):
            raise KernelGone(Message("The session ended before the image was created."))
        if not is_alive(found):
            raise KernelGone(Message("The session ended before the image was created."))
        address = f"{client.base_url}/v{client.api_version}/containers/{found['Id']}/json"
        written = client.get(address, params={"size": "1"}, timeout=client.timeout).json().get("SizeRw") or 0
        if spec.most_bytes and written > spec.most_bytes:
            raise CommitFailed(
                Message(
                    "The session wrote {written} outside its home folder; an image may contain at most {most_bytes}.",
                    written=format_size(written),
                    most_bytes=format_size(spec.most_bytes),
                ),
                code="too-large",
            )
        return found

    def _load(self, client: APIClient, archive: bytes) -> None:
        for message in client.load_image(archive) or ():
            if "error" in message:
                raise APIError(str(message["error"]))

    def _keep(self, client: APIClient, made: str, base: Mapping[str, Any], spec: CommitSpec) -> None:
        image = client.inspect_image(made)
        if left := sorted(set(_left_over(base, image))):
            raise CommitFailed(
                Message(
                    "The container engine of this agent cannot create an image without the session's "
                    "variables ({left}).",
                    left=left[:5],
                ),
                code="engine-keeps-variables",
            )
        repository, tag = parse_repository_tag(spec.reference)
        client.tag(made, repository, tag)


def _emptied(base: Mapping[str, Any], container: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration for the engine's commit, which names every variable and label of the container as empty:
    the engine copies unnamed ones."""
    own = base["Config"]
    variables = {name: "" for name in _variables(container["Config"])} | _variables(own)
    empty = {name: "" for name in container["Config"].get("Labels") or {}}
    return {
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": empty | (own.get("Labels") or {}) | dict(labels),
        "Cmd": own.get("Cmd"),
        "Entrypoint": own.get("Entrypoint") or [],
        "User": own.get("User") or "",
        "WorkingDir": own.get("WorkingDir") or "",
    }


def _archive(base: Mapping[str, Any], made: Mapping[str, Any], spec: CommitSpec) -> bytes:
    """Return an archive for ``docker load`` with only configuration, as the engine already has the layers."""
    layers = made["RootFS"]["Layers"]
    own = dict(base["Config"])
    configuration = {
        "architecture": base["Architecture"],
        "os": base["Os"],
        **({"variant": base["Variant"]} if base.get("Variant") else {}),
        "created": made["Created"],
        "config": own | {"Labels": (own.get("Labels") or {}) | spec.labels},
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": [{"created": made["Created"], "created_by": ""} for _ in layers],
    }
    places = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": [spec.reference], "Layers": places}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in (("config.json", configuration), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def _left_over(base: Mapping[str, Any], image: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variables whose values do not come from the kernel's image."""
    known = _variables(base["Config"])
    for part in _PARTS:
        for name, value in _variables(image.get(part) or {}).items():
            if value and known.get(name) != value:
                yield name


def _variables(configuration: Mapping[str, Any]) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in configuration.get("Env") or [])
    return {name: value for name, _, value in pairs}


def _forget(client: APIClient, image_id: str) -> None:
    """Delete the engine's own commit, unless it became the image."""
    try:
        if not client.inspect_image(image_id).get("RepoTags"):
            client.remove_image(image_id)
    except APIError as error:
        logger.warning("an image that was made on the way stays: %s", words_of(error))


def _pushed(layers: dict[str, tuple[int, int]], message: Mapping[str, Any]) -> Fetched:
    """Return the progress of the push over all layers."""
    known = progress_of(layers, message, moves="Pushing", is_moved=("Pushed",))
    if known is None:
        return Fetched(None, Message("Pushing to the registry."))
    done, total = known
    text = Message("{done} of {total} MiB pushed.", done=done // 2**20, total=total // 2**20)
    return Fetched(done / total, text, done, total)
