"""What the search of every page looks through: pages, objects that the user may see, guides, and actions.

Each source takes at most two queries and returns at most ``MOST`` hits. Ended sessions are left to the list's own
search, which may take its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import strip_tags
from django.utils.safestring import mark_safe

from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE, Status
from backendai.domain.pipelines.models import Run
from backendai.domain.serving.models import Endpoint
from backendai.domain.storage.models import Folder
from backendai.domain.storage.status import FolderStatus
from backendai.domain.templates.models import Template
from backendai.portal.web.account.menu import MENU as ACCOUNT
from backendai.portal.web.admin.menu import menu_for
from backendai.portal.web.guides.documents import readable_by
from backendai.portal.web.guides.rendering import page_of

MOST = 6
_PAGES = (
    ("web:sessions", _l("Sessions"), "list"),
    ("web:launch", _l("New session"), "plus"),
    ("web:folders", _l("Folders"), "folder"),
    ("web:endpoints", _l("Endpoints"), "network"),
    ("web:runs", _l("Runs"), "stack-2"),
    ("web:templates", _l("Templates"), "notebook"),
    ("web:dashboard", _l("Dashboard"), "chart-bar"),
    ("web:wall", _l("The wall"), "maximize"),
    ("web:notifications", _l("Notifications"), "bell"),
    ("web:help_start", _l("Help"), "help"),
)
# What people type before a name to do something with it, in English; each action has a button elsewhere, too.
_LAUNCH = ("launch", "new", "start")
_DO = {  # with sessions: the words of the hit, its page, its icon, and the statuses in which one can
    "stop": (_l("Stop %(name)s"), "web:session_stop", "player-pause", (Status.RUNNING,)),
    "resume": (_l("Resume %(name)s"), "web:session", "player-play", (Status.STOPPED,)),
    "terminate": (_l("Terminate %(name)s"), "web:session", "power", LIVE),
}
_DO["end"] = _DO["terminate"]


class Hit(NamedTuple):
    """A line of the answer. ``about``: what it is, beside its name."""

    title: str
    href: str
    icon: str
    about: str = ""


def found_by(user: User, text: str) -> list[tuple[str, list[Hit]]]:
    """Return the hits by kind, under titles; of kinds without a hit nothing. At most ten queries."""
    sources: tuple[tuple[str | Promise, Callable[[User, str], Iterable[Hit]]], ...] = (
        (_("Actions"), _actions),
        (_("Pages"), _pages),
        (_("Sessions"), _sessions),
        (_("Folders"), _folders),
        (_("Endpoints"), _endpoints),
        (_("Runs"), _runs),
        (_("Templates"), _templates),
        (_("Images"), _images),
        (_("People and projects"), _people),
        (_("Agents"), _agents),
        (_("Help"), _guides),
    )
    found = [(str(title), list(source(user, text))) for title, source in sources]
    return [(title, hits) for title, hits in found if hits]


def _actions(user: User, text: str) -> Iterator[Hit]:
    verb, _space, name = text.partition(" ")
    if verb.lower() in _LAUNCH and name:
        for image in _first(Image.objects.usable_by(user), name, "name", "title"):
            title = _("Launch %(name)s") % {"name": image.title or image.name}
            yield Hit(title, f"{reverse('web:launch')}?{urlencode({'image': image.name})}", "player-play")
    if verb.lower() in _DO and name:
        words, page, icon, statuses = _DO[verb.lower()]
        for session in _first(_live(user).filter(status__in=statuses), name, "name"):
            yield Hit(words % {"name": session.name}, _address(page, session), icon, session.owner.email)


def _pages(user: User, text: str) -> Iterator[Hit]:
    pages = [(str(title), reverse(route), icon) for route, title, icon in _PAGES]
    pages += [(str(one.title), reverse(one.address), one.icon) for one in ACCOUNT]
    for _group, entries in menu_for(user):
        pages += [(str(one.title), reverse(f"manage:{one.section}"), one.icon) for one in entries]
    hits = (Hit(title, href, icon) for title, href, icon in pages if text.lower() in title.lower())
    yield from islice(hits, MOST)


def _sessions(user: User, text: str) -> Iterator[Hit]:
    for one in _first(_live(user), text, "name", "owner__email"):
        yield Hit(one.name, _address("web:session", one), "terminal-2", f"{_(Status(one.status).label)} · {one.owner}")
    ended = reverse("web:sessions") + "?" + urlencode({"view": "finished", "q": text})
    yield Hit(_("Search finished sessions for “%(text)s”") % {"text": text}, ended, "history")


def _folders(user: User, text: str) -> Iterator[Hit]:
    for one in _first(Folder.objects.visible_to(user).filter(status=FolderStatus.READY), text, "name"):
        yield Hit(one.name, _address("web:folder", one), "folder")


def _endpoints(user: User, text: str) -> Iterator[Hit]:
    for one in _first(Endpoint.objects.visible_to(user).live(), text, "name"):
        yield Hit(one.name, _address("web:endpoint", one), "network")


def _runs(user: User, text: str) -> Iterator[Hit]:
    live = Run.objects.visible_to(user).filter(ended_at=None)
    for one in _first(live, text, "name"):
        yield Hit(one.name, _address("web:run", one), "stack-2")


def _templates(user: User, text: str) -> Iterator[Hit]:
    for one in _first(Template.objects.visible_to(user), text, "name", "title"):
        yield Hit(one.title or one.name, _address("web:template", one), "notebook")


def _images(user: User, text: str) -> Iterator[Hit]:
    for one in _first(Image.objects.usable_by(user), text, "name", "title"):
        href = f"{reverse('web:launch')}?{urlencode({'image': one.name})}"
        yield Hit(one.title or one.name, href, "package", _("launch a session"))


def _people(user: User, text: str) -> Iterator[Hit]:
    if user.role == User.Role.USER:
        return
    for one in _first(User.objects.visible_to(user), text, "email", "full_name"):
        yield Hit(one.display_name, reverse("manage:user", args=[one.pk]), "user", one.email)
    for project in _first(Project.objects.visible_to(user), text, "name"):
        yield Hit(project.name, reverse("manage:project", args=[project.pk]), "users")


def _agents(user: User, text: str) -> Iterator[Hit]:
    if not user.is_superadmin:
        return
    for one in _first(Agent.objects.visible_to(user).select_related("resource_group"), text, "name"):
        yield Hit(one.name, reverse("manage:agent", args=[one.pk]), "server", str(one.resource_group))


def _guides(user: User, text: str) -> Iterator[Hit]:
    guides = readable_by(user)
    sections = [(one, section) for one in guides for section in page_of(one, guides).matching(text)]
    sections.sort(key=lambda hit: hit[1].relevance(text), reverse=True)
    for one, section in sections[:MOST]:
        href = f"{reverse('web:help', args=[one.slug])}#{section.anchor}"
        title = mark_safe(strip_tags(section.title))  # noqa: S308  (made and escaped by the parser of the guides)
        yield Hit(title, href, "help", str(one.title))


def _live(user: User) -> QuerySet[Any]:
    return ComputeSession.objects.visible_to(user).live().select_related("owner")


def _first(rows: QuerySet[Any], text: str, *columns: str) -> Iterable[Any]:
    """Return the first rows that have the text in a column, by the first column."""
    condition = Q()
    for column in columns:
        condition |= Q(**{f"{column}__icontains": text})
    return rows.filter(condition).order_by(columns[0])[:MOST]


def _address(route: str, row: Any) -> str:
    return reverse(route, args=[row.pk])
