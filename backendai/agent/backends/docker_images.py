"""Lists and pulls the engine's images."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import requests
import urllib3
from docker import auth
from docker.errors import APIError, NotFound
from docker.utils import parse_repository_tag
from pydantic import ValidationError

from backendai.agent.backends.base import NOBODY, BackendError, Fetched, ImageNotFound, Progress
from backendai.agent.backends.docker_engine import Engine, said
from backendai.agent.backends.docker_holder_image import IMAGE as HOLDER_IMAGE
from backendai.core.messages import Message
from backendai.wire.fields import MOST_LABELS
from backendai.wire.messages import ImageSighting
from backendai.wire.pulls import RegistryAccess

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 120.0
_CONNECT_SECONDS = 10.0
_OWN_LABELS = "ai.backend."
_UNKNOWN_TO_REGISTRY = ("pull access denied", "manifest unknown", "not found", "does not exist", "repository name")
_NOT_LET_IN = ("no basic auth credentials", "unauthorized", "incorrect username or password", "authentication required")
_NO_REGISTRY = ("no such host", "dial tcp", "i/o timeout", "connection refused", "tls handshake", "client.timeout")


class Images:
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
        with self._engine.asking() as client:
            try:
                client.inspect_image(reference)
            except NotFound:
                return False
        return True

    def pull(self, reference: str, *, timeout: float, progress: Progress, access: RegistryAccess = NOBODY) -> None:
        """Pull an image and report the progress over its layers. Without an account the engine's own is used."""
        deadline = time.monotonic() + timeout
        layers: dict[str, tuple[int, int]] = {}
        try:
            for message in self._pull_messages(reference, access):
                if "error" in message:
                    raise pull_refusal(reference, str(message["error"]))
                progress(_fetched(layers, message))
                if time.monotonic() > deadline:
                    raise BackendError(
                        "Pulling the image {reference} took longer than {timeout} seconds.",
                        reference=reference,
                        timeout=f"{timeout:.0f}",
                        code="pull-timeout",
                    )
        except APIError as error:
            raise pull_refusal(reference, said(error)) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise BackendError(
                "Pulling the image {reference} was interrupted: no data for {silence_seconds} seconds, or "
                "the container engine went away.",
                reference=reference,
                silence_seconds=f"{SILENCE_SECONDS:.0f}",
                code="pull-broken-off",
            ) from error

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
            try:
                self._architectures[image_id] = self._engine.client.inspect_image(image_id)["Architecture"]
            except NotFound:
                return ""
        return self._architectures[image_id]

    def _pull_messages(self, reference: str, access: RegistryAccess) -> Iterator[dict[str, Any]]:
        """Yield the engine's messages about a pull. Makes the request itself, as the SDK's pull has no timeout for a
        silent registry."""
        client = self._engine.client
        repository, tag = parse_repository_tag(reference)
        registry, _ = auth.resolve_repository_name(repository)
        if access.username:
            credentials = auth.encode_header({"username": access.username, "password": access.password})
        else:
            credentials = auth.get_config_header(client, registry)
        response = client.post(
            f"{client.base_url}/v{client.api_version}/images/create",
            params={"fromImage": repository, "tag": tag or "latest"},
            headers={"X-Registry-Auth": credentials} if credentials else {},
            stream=True,
            timeout=(_CONNECT_SECONDS, SILENCE_SECONDS),
        )
        with response:
            if not response.ok:
                raise pull_refusal(reference, _words(response))
            for line in response.iter_lines():
                if line:
                    yield json.loads(line)


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


def _fetched(layers: dict[str, tuple[int, int]], message: dict[str, Any]) -> Fetched:
    """Return the progress over all layers known so far."""
    detail = message.get("progressDetail") or {}
    if message.get("status") == "Downloading" and detail.get("total"):
        layers[message["id"]] = (detail.get("current", 0), detail["total"])
    elif message.get("status") in ("Download complete", "Pull complete") and message.get("id") in layers:
        total = layers[message["id"]][1]
        layers[message["id"]] = (total, total)
    done, total = (sum(column) for column in zip(*layers.values(), strict=True)) if layers else (0, 0)
    if not total:
        return Fetched(None, str(message.get("status", "")))
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


def _words(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError):
        return response.text.strip()
