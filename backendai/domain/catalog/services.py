"""Records the images of agents, and seeds the platform's own images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import architecture_name
from backendai.base.core.slots import Slots
from backendai.base.wire.messages import ImageSighting
from backendai.domain.catalog.image_rules import wrong_image
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.cluster.models import Agent

BUILD_JOB = "image.build"
PREFERRED_IMAGE = "python-science"  # the launcher begins with it where an agent has it
# In the order in which they are made: what people can work with first comes first.
_BUILT_HERE: dict[str, dict[str, Any]] = {
    "python": {
        "title": "Python",
        "description": Message("Small: JupyterLab, git and tmux. Install more with pip."),
        "reference": "local/backendai-python:latest",
        "process_reference": "process/python",
        "minimum": {"cpu": "0.1", "mem": str(64 * 2**20)},
    },
    PREFERRED_IMAGE: {
        "title": Message("Python (science)"),
        "description": Message("NumPy, pandas, SciPy, scikit-learn, Matplotlib, JupyterLab, a compiler and vim."),
        "reference": "local/backendai-python-science:latest",
        "minimum": {"cpu": "0.1", "mem": str(256 * 2**20)},
    },
}
_MINIMUM_PREFIX, _MAXIMUM_PREFIX = "ai.backend.resource.min.", "ai.backend.resource.max."


def record_images(agent: Agent, images: Sequence[ImageSighting], digest: str) -> None:
    """Save the list of images that this agent has, and copy their labels to catalogue images without labels."""
    record_images_of([agent], images, digest)


def record_images_of(agents: Sequence[Agent], images: Sequence[ImageSighting], digest: str) -> None:
    """Save that all these agents have exactly these images. The number of statements does not grow with the agents."""
    seen = {image.reference: image for image in images}
    ids = [agent.pk for agent in agents]
    with transaction.atomic():
        ImageOnAgent.objects.filter(agent__in=ids).exclude(reference__in=seen).delete()
        ImageOnAgent.objects.bulk_create(
            [_row(agent, image) for agent in agents for image in seen.values()],
            update_conflicts=True,
            unique_fields=["agent", "reference"],
            update_fields=["digest", "architecture", "size_bytes", "labels"],
        )
        Agent.objects.filter(pk__in=ids).update(images_digest=digest)
        _refresh_catalogue(seen)


def seed_images() -> None:
    """Create the catalogue entries of the platform's own images if they are missing."""
    for name, values in _BUILT_HERE.items():
        Image.objects.get_or_create(name=name, defaults=values | {"is_built_here": True})


def built_here() -> list[Image]:
    """Return the images that the platform builds itself, in the order of their builds."""
    order = {name: place for place, name in enumerate(_BUILT_HERE)}
    return sorted(Image.objects.kept().filter(is_built_here=True), key=lambda image: order.get(image.name, len(order)))


def adopt_labels(image: Image) -> None:
    """Copy an image's labels from an agent that has the image, if the catalogue has none.

    Also sets its amounts and architecture.
    """
    there = ImageOnAgent.objects.filter(reference=image.reference).exclude(labels={}).order_by("pk").first()
    if there and not image.labels:
        take_over(image, there.labels, there.architecture)


def take_over(image: Image, labels: dict[str, str], architecture: str) -> None:
    """Save these labels of an image in the catalogue, with the amounts and architecture that they name."""
    image.labels = labels
    image.minimum = _bounds(labels, _MINIMUM_PREFIX) or image.minimum
    image.maximum = _bounds(labels, _MAXIMUM_PREFIX) or image.maximum
    if wrong_image(image.minimum, image.maximum, ""):
        image.maximum = {}
    image.architecture = architecture_name(architecture) or image.architecture
    image.save(update_fields=["labels", "minimum", "maximum", "architecture"])


def _row(agent: Agent, image: ImageSighting) -> ImageOnAgent:
    return ImageOnAgent(
        agent=agent,
        reference=image.reference,
        digest=image.digest,
        architecture=architecture_name(image.architecture),
        size_bytes=image.size_bytes,
        labels=image.labels,
    )


def _refresh_catalogue(seen: dict[str, ImageSighting]) -> None:
    """Copy the labels of images to catalogue entries without labels, and update digests of the platform's own.

    Existing labels stay, as an agent must not change what people may request. An administrator can empty the labels to
    have them copied again.
    """
    for image in Image.objects.filter(reference__in=seen, labels={}):
        found = seen[image.reference]
        take_over(image, found.labels, found.architecture)
    for image in Image.objects.filter(reference__in=seen, is_built_here=True):
        digest = seen[image.reference].digest
        if digest and digest != image.digest:  # a record of what sessions start; nothing is pinned to it
            Image.objects.filter(pk=image.pk).update(digest=digest)


def _bounds(labels: dict[str, str], prefix: str) -> dict[str, str]:
    amounts = {name.removeprefix(prefix): value for name, value in labels.items() if name.startswith(prefix)}
    try:
        return Slots.parse(amounts).to_json()
    except UserError:
        return {}
