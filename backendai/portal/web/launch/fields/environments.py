"""Groups images into environments with versions for the launcher, with reasons for those that cannot be chosen."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import parse_image_name
from backendai.base.core.service_ports import service_ports_of
from backendai.base.texts.isolation import isolated
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.catalog.services import PREFERRED_IMAGE
from backendai.domain.cluster.models import Agent
from backendai.domain.planning.agents import agent_rows_of, lacked_by_all
from backendai.portal.web.dashboard.images import images_open

FEW = 6
_BASE, _ROLE, _FEATURES = "ai.backend.base-distro", "ai.backend.role", "ai.backend.features"
_CUSTOMIZED = "ai.backend.customized-image.name"
_SHORT_DIGEST = 12


def _open_there(owner: Any, domain_id: Any) -> QuerySet[Any, Any]:
    return Image.objects.usable_by(owner).usable_in(domain_id).order_by().values_list("pk", flat=True)


def _holder(group: Any, reference: Any) -> QuerySet[Any, Any]:
    return Agent.objects.registered().filter(resource_group__name=group, images__reference=reference).order_by()[:1]


@dataclass(frozen=True, slots=True)
class Version:
    """One image of an environment.

    ``obstacle``: why it cannot start now in the form's project and group; empty: it can. ``is_closed``: it cannot be
    chosen there, as waiting would not help.
    """

    image: Image
    name: str
    badges: tuple[str, ...]
    obstacle: str
    is_closed: bool

    @property
    def badges_json(self) -> str:
        """The badges as JSON for the page's script."""
        return json.dumps(self.badges)

    @property
    def opens(self) -> str:
        """The app that opens when the session runs; empty: none."""
        return opened_by(self.image)

    @property
    def text(self) -> str:
        """Name and badges in one line, for a list without badges. Each text keeps its own writing direction."""
        return " · ".join(map(isolated, (self.name, *self.badges)))


@dataclass(frozen=True, slots=True)
class Environment:
    """A group of images that people choose first.

    Its versions: those that can be chosen before the others, each the newest first.
    """

    key: str
    title: str
    description: str
    versions: tuple[Version, ...]

    @property
    def first(self) -> Version:
        """The preselected version."""
        return self.versions[0]

    @property
    def obstacle(self) -> str:
        """Why no version can start now; empty if one can."""
        return self.first.obstacle

    @property
    def is_closed(self) -> bool:
        """Whether no version can be chosen."""
        return self.first.is_closed

    @property
    def words(self) -> str:
        """The text in which a search looks for words."""
        own = {self.title, self.description, *(version.text for version in self.versions)}
        return " ".join(sorted(own | {version.image.name for version in self.versions})).lower()

    def has(self, name: str) -> bool:
        """Return whether a version has the image of this name."""
        return any(version.image.name == name for version in self.versions)


@dataclass(frozen=True, slots=True)
class Offer:
    """All environments that a user may choose from."""

    environments: tuple[Environment, ...]

    @property
    def is_plain(self) -> bool:
        """Whether each environment is a card of its own: there are few, each with one version."""
        return len(self.environments) <= FEW and all(len(each.versions) == 1 for each in self.environments)

    @property
    def has_many(self) -> bool:
        """Whether there are so many environments that the page has a search."""
        return len(self.environments) > FEW

    def first_in(self, group: str) -> Image | None:
        """Return the image to preselect in this resource group (by name).

        It is the preferred image if an agent has it, else the first that can be chosen.
        """
        open_ones = [each.first.image for each in self.environments if not each.is_closed]
        preferred = next((image for image in open_ones if image.name == PREFERRED_IMAGE and image.is_built_here), None)
        if preferred and next(iter(_holder(group, preferred.reference)), None):
            return preferred
        return next((image for image in open_ones if image != preferred), preferred)

    @property
    def images(self) -> list[Image]:
        """The images of all environments."""
        return [version.image for each in self.environments for version in each.versions]

    def find(self, name: str) -> Version | None:
        """Return the version with the image of this name, or None."""
        found = (version for each in self.environments for version in each.versions if version.image.name == name)
        return next(found, None)


def offer_for(owner: User, *, project: Project | None, group: str) -> Offer:
    """Return the environments for this project and resource group (by name), in at most five queries.

    Images that cannot start there are included with the reason. Private images and those of the platform's own sessions
    are left out.
    """
    images = [image for image in images_open(owner) if _is_for_people(image)]
    obstacle = _obstacles(owner, project, group, images)
    found: dict[str, list[Version]] = {}
    for image in images:
        name, tags = _version(image)
        found.setdefault(_key(image), []).append(Version(image, name, _badges(owner, image, tags), *obstacle(image)))
    environments = _told_apart([_environment(key, versions) for key, versions in found.items()])
    return Offer(tuple(sorted(environments, key=lambda each: (*_ease(each), each.title.lower(), each.key))))


def _ease(choice: Version | Environment) -> tuple[bool, bool]:
    """Return a sort key: what can start now, then what can be chosen."""
    return choice.is_closed, bool(choice.obstacle)


def _obstacles(
    owner: User, project: Project | None, group: str, images: Sequence[Image]
) -> Callable[[Image], tuple[str, bool]]:
    """Return a function that returns why an image cannot start there (empty: it can), and whether it is closed."""
    open_there = set(list(_open_there(owner, project.domain_id))) if project else None
    agents = agent_rows_of(group)
    lacking = lacked_by_all(agents, images) if agents else {}
    facts = {"group": group, "offered": ", ".join(sorted({agent.architecture for agent in agents} - {""}))}

    def obstacle(image: Image) -> tuple[str, bool]:
        if open_there is not None and project and image.pk not in open_there:
            return _("Not open to project %(project)s.") % {"project": project.name}, True
        match lacking.get(image.pk):
            case "architecture" if facts["offered"]:
                said = _("The image needs %(wanted)s; resource group %(group)s has %(offered)s.")
                return said % (facts | {"wanted": image.architecture}), True
            case "containers":
                return _("The image needs containers; resource group %(group)s has none for it.") % facts, True
            case "image":
                said = _("No agent of resource group %(group)s has the image or can pull it now.")
                return said % facts, False
        return "", False

    return obstacle


def _is_for_people(image: Image) -> bool:
    labels = image.labels
    return labels.get(_ROLE, "").upper() != "SYSTEM" and "private" not in labels.get(_FEATURES, "").split()


def _key(image: Image) -> str:
    try:
        name = parse_image_name(image.reference)
    except UserError:
        return image.reference
    return f"{name.registry}/{name.repository}"


def _version(image: Image) -> tuple[str, list[str]]:
    """Return the version in the image's tag, and the other parts of the tag: ``2.15-py312-cuda12`` is 2.15."""
    try:
        name = parse_image_name(image.reference)
    except UserError:
        return image.name, []
    if name.digest:
        return name.digest.partition(":")[2][:_SHORT_DIGEST], []
    first, *tags = name.tag.split("-")
    return first or name.tag, [tag for tag in tags if tag]


def _badges(owner: User, image: Any, tags: Collection[str]) -> tuple[str, ...]:
    called = image.title or image.labels.get(_CUSTOMIZED, "")
    own = (_("%(name)s (customized)") % {"name": called} if called else _("customized")) if image.is_customized else ""
    whose = image.owner_email or "" if image.is_customized and image.owner_id != owner.pk else ""
    base = image.labels.get(_BASE, "")
    shown = (own, whose, base, image.architecture, *(tag for tag in tags if not tag.lower().startswith("customized_")))
    return tuple(dict.fromkeys(text for text in shown if text))


def _environment(key: str, versions: Iterable[Version]) -> Environment:
    ordered = sorted(versions, key=lambda version: _natural(version.text), reverse=True)
    ordered.sort(key=lambda version: (*_ease(version), version.image.is_customized))
    # One's own are named by their badge; the environment is called what it is called for others.
    common = [version for version in ordered if not version.image.is_customized] or ordered
    titles = {version.image.title for version in common}
    descriptions = {version.image.description for version in common}
    if len(ordered) == 1:
        title = ordered[0].image.display_name
    else:
        title = (titles.pop() if len(titles) == 1 else "") or key.rpartition("/")[2]
    return Environment(key, title, descriptions.pop() if len(descriptions) == 1 else "", tuple(ordered))


def _told_apart(environments: list[Environment]) -> list[Environment]:
    """Return the environments, adding their key to titles that several have."""
    number = Counter(each.title for each in environments)
    return [
        replace(each, title=f"{each.title} ({each.key})") if number[each.title] > 1 else each for each in environments
    ]


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts 3.9 before 3.12, and words such as ``latest`` after numbers."""
    parts = re.findall(r"\d+|[^\d.·\s]+", text)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


OPENED = "jupyterlab"
_IN_BROWSERS = frozenset({"http", "preopen"})
_LONGEST_KEY = 64


def opened_by(image: Image) -> str:
    """Return the name of the app that a session of this image can open automatically; empty: none."""
    services = service_ports_of(image.effective_labels)
    return OPENED if any(one.name == OPENED and one.protocol in _IN_BROWSERS for one in services) else ""


def is_launch_key(text: str) -> bool:
    """Return whether the text can be the key of a launch in an address."""
    return text.isascii() and text.isalnum() and len(text) <= _LONGEST_KEY
