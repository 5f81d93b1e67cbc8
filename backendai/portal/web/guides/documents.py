"""The guides under Help, and who may read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import User

FOLDER = Path(settings.BASE_DIR) / "docs"
USER_GUIDE, ADMIN_GUIDE = "user-guide", "admin-guide"


def _everybody(user: User) -> bool:
    return True


def _administrators(user: User) -> bool:
    return user.role != User.Role.USER


@dataclass(frozen=True, slots=True)
class Guide:
    """A file of ``docs/``; ``slug`` is its name without the extension, and the last part of its address.

    ``file``: a file beside ``docs/`` instead. ``folder``: the folder in ``docs/`` that has it.
    """

    slug: str
    title: str | Promise
    rule: Callable[[User], bool] = _everybody
    file: str = ""
    folder: str = ""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return FOLDER.parent / self.file if self.file else FOLDER / self.folder / f"{self.slug}.md"

    @property
    def section(self) -> str | Promise:
        """The heading in the list of guides."""
        return _SECTIONS[self.folder]


_TUTORIALS, _HOW_TO = "tutorials", "how-to"
_SECTIONS = {"": _l("Guides"), _TUTORIALS: _l("Tutorials"), _HOW_TO: _l("How-to")}
GUIDES = (
    Guide(USER_GUIDE, _l("User guide")),
    Guide("rest", _l("REST API")),
    Guide(ADMIN_GUIDE, _l("Administrator's guide"), _administrators),
    Guide("operations", _l("Operations"), _administrators),
    Guide("security", _l("Security"), _administrators),
    Guide("images", _l("Kernel images"), _administrators),
    Guide("first-session", _l("Your first session"), folder=_TUTORIALS),
    Guide("train-and-keep", _l("Train a model"), folder=_TUTORIALS),
    Guide("class-of-twenty", _l("A class of twenty"), folder=_TUTORIALS),
    Guide("first-week", _l("An administrator's first week"), _administrators, folder=_TUTORIALS),
    Guide("vs-code", _l("VS Code"), folder=_HOW_TO),
    Guide("foreign-clients", _l("Foreign clients"), folder=_HOW_TO),
    Guide("from-slurm", _l("Coming from Slurm"), folder=_HOW_TO),
    Guide("from-jupyterhub", _l("Coming from JupyterHub"), folder=_HOW_TO),
    Guide("from-backend-ai", _l("Coming from Backend.AI"), folder=_HOW_TO),
    Guide("proxy-and-tls", _l("Proxy with TLS"), _administrators, folder=_HOW_TO),
    Guide("sign-in", _l("Identity providers"), _administrators, folder=_HOW_TO),
    Guide("nfs", _l("Folders on NFS"), _administrators, folder=_HOW_TO),
    Guide("gpus", _l("GPUs"), _administrators, folder=_HOW_TO),
    Guide("monitoring", _l("Monitoring"), _administrators, folder=_HOW_TO),
    Guide("troubleshooting", _l("Troubleshooting"), _administrators, folder=_HOW_TO),
)


def readable_by(user: User) -> list[Guide]:
    """Return the guides that this user may read."""
    return [guide for guide in GUIDES if guide.rule(user)]
