"""Lists and pulls the engine's images."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

from docker import auth
from docker.utils import parse_repository_tag
from pydantic import ValidationError

from backendai.agent.backends.base import NOBODY, BackendError, Fetched, ImageNotFound, Progress
from backendai.agent.backends.docker.engine import UNREACHABLE, Engine
from backendai.agent.backends.docker.networks.prepared.holder_image import IMAGE as HOLDER_IMAGE
from backendai.agent.backends.docker.stream import EngineRefused, engine_messages
from backendai.base.core.messages import Message
from backendai.base.wire.fields import MOST_LABELS
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import ImageSighting

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 120.0
_OWN_LABELS = "ai.backend."
_UNKNOWN_TO_REGISTRY = ("pull access denied", "manifest unknown", "not found", "does not exist", "repository name")
_NOT_LET_IN = ("no basic auth credentials", "unauthorized", "incorrect username or password", "authentication required")
_NO_REGISTRY = ("no such host", "dial tcp", "i/o timeout", "connection refused", "tls handshake", "client.timeout")


class DockerImages:
    """Lists and pulls images."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._architectures: dict[str, str] = {}
        self._untold: set[str] = set()

    def sightings(self) -> list[ImageSighting]:
        """Return one entry per tag, and one per digest of images without tags. Leaves out leftovers of builds and
        holder images."""
        with self._engine.asking() as client:
            listed = client.images()
            seen = [self._sighting(image, tag) for image in listed for tag in _names(image)]
        return [sighting for sighting in seen if sighting is not None]

    def has(self, reference: str) -> bool:
        """Return whether the engine has the image."""
        with self._engine.asking():
            return self._engine.image(reference) is not None

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        """Pull an image and report the progress over its layers. Without an account the engine's own is used."""
        deadline = time.monotonic() + timeout
        layers: dict[str, tuple[int, int]] = {}
        fetched = Fetched(None, "")
        try:
            with closing(self._pull_messages(reference, access)) as messages:
                for message in messages:
                    if "error" in message:
                        raise pull_refusal(reference, str(message["error"]))
                    fetched = _fetched(layers, message) if message else fetched
                    progress(fetched)
                    if time.monotonic() > deadline:
                        raise BackendError(
                            "Pulling the image {reference} took longer than {timeout} seconds.",
                            reference=reference,
                            timeout=f"{timeout:.0f}",
                            code="pull-timeout",
                        )
            is_here = self.has(reference)  # the last message may have been cut off
        except EngineRefused as error:
            raise pull_refusal(reference, error.words) from error
        except BackendError as error:
            if error.code != UNREACHABLE:
                raise
            raise _broken_off(reference) from error
        except TimeoutError as error:
            raise _broken_off(reference) from error
        if not is_here:
            raise _broken_off(reference)

    def _sighting(self, image: dict[str, Any], tag: str) -> ImageSighting | None:
        if tag.startswith("<none>") or tag == HOLDER_IMAGE:
            return None
        try:
            return ImageSighting(
                reference=tag,
                digest=_digest(image, tag),
                architecture=self._architecture(image["Id"]),
                size_bytes=image["Size"],
                labels=_told_labels(image["Labels"] or {}),
            )
        except ValidationError as error:  # such as a name of 384 letters: one invalid image must not block all reports
            if image["Id"] not in self._untold:
                self._untold.add(image["Id"])
                logger.warning("image %.100s cannot be offered: %s", tag, error.errors()[0]["msg"])
            return None

    def _architecture(self, image_id: str) -> str:
        if image_id not in self._architectures:
            if (image := self._engine.image(image_id)) is None:
                return ""
            self._architectures[image_id] = image["Architecture"]
        return self._architectures[image_id]

    def _pull_messages(self, reference: str, access: RegistryAccess) -> Generator[dict[str, Any]]:
        """Return the engine's messages about a pull (see ``engine_messages``): the SDK's pull cannot be given up while
        a registry is silent."""
        repository, tag = parse_repository_tag(reference)
        with self._engine.asking() as client:
            registry, _ = auth.resolve_repository_name(repository)
            credentials = auth.get_config_header(client, registry)
            version = client.api_version
        if access.username:
            credentials = auth.encode_header({"username": access.username, "password": access.password})
        path = f"/v{version}/images/create?{urlencode({'fromImage': repository, 'tag': tag or 'latest'})}"
        headers = {"X-Registry-Auth": credentials.decode()} if credentials else {}
        return engine_messages(self._engine.url, path, headers, silence=SILENCE_SECONDS)


def _told_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels for the portal: the platform's first, without too long ones."""
    own_first = sorted(labels.items(), key=lambda label: not label[0].startswith(_OWN_LABELS))
    fitting = [(name, text) for name, text in own_first if len(name) <= 255 and len(text) <= 4096]
    return dict(fitting[:MOST_LABELS])


def _names(image: dict[str, Any]) -> list[str]:
    tags: list[str] = [tag for tag in image["RepoTags"] or [] if not tag.startswith("<none>")]
    return tags or image.get("RepoDigests") or []


def _digest(image: dict[str, Any], tag: str) -> str:
    """Return the image's digest in the tag's own repository, else the engine's id."""
    by_repository = dict(each.split("@", 1) for each in image.get("RepoDigests") or [] if "@" in each)
    repository, _, _ = tag.partition("@") if "@" in tag else tag.rpartition(":")
    return str(by_repository.get(repository) or next(iter(by_repository.values()), "") or image["Id"])


def progress_of(
    layers: dict[str, tuple[int, int]], message: Mapping[str, Any], *, moves: str, is_moved: Collection[str]
) -> tuple[int, int] | None:
    """Return done and total bytes over all layers known so far, after this message of the engine; None: unknown.
    ``moves``, ``is_moved``: its words for a layer that is being transferred, and for one that is."""
    detail, layer = message.get("progressDetail") or {}, str(message.get("id"))
    if message.get("status") == moves and detail.get("total"):
        layers[layer] = (min(detail.get("current", 0), detail["total"]), detail["total"])
    elif message.get("status") in is_moved and layer in layers:
        layers[layer] = (layers[layer][1],) * 2
    total = sum(each[1] for each in layers.values())
    return (sum(each[0] for each in layers.values()), total) if total else None


def _fetched(layers: dict[str, tuple[int, int]], message: dict[str, Any]) -> Fetched:
    """Return the progress over all layers known so far."""
    known = progress_of(layers, message, moves="Downloading", is_moved=("Download complete", "Pull complete"))
    if known is None:
        return Fetched(None, str(message.get("status", "")))
    done, total = known
    return Fetched(done / total, f"{done // 2**20} of {total // 2**20} MiB", done, total)


def pull_refusal(reference: str, words: str) -> BackendError:
    """Return the error that corresponds to a pull's message."""
    lower = words.lower()
    if any(sign in lower for sign in _NO_REGISTRY):
        return BackendError(
            "The image {reference} is not on this agent and its registry cannot be reached: {words}",
            reference=reference,
            words=words,
            code="registry-unreachable",
        )
    if any(sign in lower for sign in _NOT_LET_IN):
        return BackendError(
            "The registry of the image {reference} requires credentials, or rejected the configured ones: {words}",
            reference=reference,
            words=words,
            code="registry-denied",
        )
    if any(sign in lower for sign in _UNKNOWN_TO_REGISTRY):
        return ImageNotFound(
            Message(
                "The image {reference} is neither on this agent nor in its registry: {words}",
                reference=reference,
                words=words,
            )
        )
    return BackendError(
        "The image {reference} could not be pulled: {words}", reference=reference, words=words, code="pull-failed"
    )


def _broken_off(reference: str) -> BackendError:
    return BackendError(
        "Pulling the image {reference} was interrupted: no data for {silence_seconds} seconds, or "
        "the container engine went away.",
        reference=reference,
        silence_seconds=f"{SILENCE_SECONDS:.0f}",
        code="pull-broken-off",
    )
