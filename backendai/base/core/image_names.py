"""Parses references of container images: ``registry.example.org:5000/lab/python:3.12@sha256:…``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

USUAL_REGISTRY = "docker.io"
CUSTOMIZED_TAG = "customized_"
LONGEST_REFERENCE = 255
_LONGEST_TAG = 128
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-f]{32,128}\Z")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?\Z")


@dataclass(frozen=True, slots=True)
class ImageName:
    """A reference split into its parts. ``digest`` may be empty."""

    registry: str
    repository: str
    tag: str
    digest: str = ""


def parse_image_name(text: str, *, field: str = "reference") -> ImageName:
    """Return the parts of an image reference. Defaults: registry docker.io, tag ``latest``. Raises UserError if it is
    invalid."""
    rest, _, digest = text.partition("@")
    first, slash, behind = rest.partition("/")
    registry = USUAL_REGISTRY
    if slash and (first == "localhost" or "." in first or ":" in first):
        registry, rest = first, behind
    repository, colon, tag = rest.rpartition(":")
    if not colon:
        repository, tag = rest, "latest"
    right = _HOST.match(registry) and _REPOSITORY.match(repository) and _TAG.match(tag)
    if not right or ("@" in text and not _DIGEST.match(digest)):
        raise UserError(
            "{text} is not the name of an image.", text=repr(text[:100]), field=field, code="invalid-image-name"
        )
    return ImageName(registry, repository, tag, digest)


def customized(reference: str, key: str) -> str:
    """Return the reference for an image saved from a session of this image: the same repository, with a tag that ends
    with ``key``. Raises UserError if the reference becomes too long."""
    head = reference.partition("@")[0]
    repository, colon, tag = head.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = head, "latest"
    suffix = f"-{CUSTOMIZED_TAG}{key}"
    tag = tag.partition(f"-{CUSTOMIZED_TAG}")[0][: _LONGEST_TAG - len(suffix)]
    made = f"{repository}:{tag}{suffix}"
    if len(made) > LONGEST_REFERENCE:
        text = Message(
            "The name of the image would have {number} characters; at most {longest_reference} are allowed.",
            number=len(made),
            longest_reference=LONGEST_REFERENCE,
        )
        raise UserError(text, field="name", code="invalid-image-name", limit=LONGEST_REFERENCE)
    parse_image_name(made)
    return made


def pinned(reference: str, digest: str) -> str:
    """Return the reference with the digest instead of its tag. Unchanged if the digest is empty, or the reference has a
    digest already."""
    if not digest or "@" in reference:
        return reference
    head, colon, tag = reference.rpartition(":")
    return f"{head if colon and '/' not in tag else reference}@{digest}"


def is_exact_digest(text: str) -> bool:
    """Return whether the text is a complete SHA-256 digest: ``sha256:`` and 64 lower-case hex digits."""
    return bool(_SHA256.match(text))


def is_digest(text: str) -> bool:
    """Return whether the text is a digest: ``sha256:…``."""
    return bool(_DIGEST.match(text))
