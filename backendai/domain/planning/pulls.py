"""Which agents pull an image before a session can start on them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from backendai.base.core.image_names import pinned
from backendai.base.wire.capabilities import Capability
from backendai.domain.catalog.models import Image, ImageOnAgent, ImagePull
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.cluster.models import Agent


@dataclass(frozen=True, slots=True)
class PullFirst:
    """The agents that pull an image first. ``progress``: that of the slowest pull, from 0 to 1; None: unknown."""

    agents: tuple[str, ...]
    progress: float | None = None


def pull_before(starts: Collection[tuple[UUID, Image]]) -> PullFirst | None:
    """Return which of these agents pull the image of a kernel first; None if no agent does.

    ``starts``: the agent and the image of each kernel. At most three queries.
    """
    fetched = {(agent, image) for agent, image in starts if not image.is_on_nodes_only}
    if not fetched:
        return None
    found = Agent.objects.filter(pk__in={agent for agent, _ in fetched}).only("name", "capabilities", "backend")
    agents = {each.pk: each.name for each in found if Capability.LISTED_IMAGES in capabilities_of(each)}
    names = {name for _, image in fetched for name in _names(image)}
    rows = ImageOnAgent.objects.filter(agent__in=agents, reference__in=names)
    there = set(rows.values_list("agent_id", "reference", "digest"))
    lacking = [(agent, image) for agent, image in fetched if agent in agents and not _is_there(agent, image, there)]
    if not lacking:
        return None
    pulls = ImagePull.objects.filter(
        status=ImagePull.Status.PULLING,
        agent__in={agent for agent, _ in lacking},
        image__in={image.pk for _, image in lacking},
    )
    known = [each for each in pulls.values_list("progress", flat=True) if each is not None]
    return PullFirst(tuple(sorted({agents[agent] for agent, _ in lacking})), min(known, default=None))


def _names(image: Image) -> set[str]:
    return {image.reference, pinned(image.reference, image.digest)}


def _is_there(agent: UUID, image: Image, there: Collection[tuple[UUID, str, str]]) -> bool:
    names = _names(image)
    return any(pk == agent and name in names and image.digest in ("", digest) for pk, name, digest in there)
