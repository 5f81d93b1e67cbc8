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
    """A file of ``docs/``; ``slug`` is its name without the extension, and the last part of its address."""

    slug: str
    title: str | Promise
    rule: Callable[[User], bool] = _everybody

    @property
    def path(self) -> Path:
        """The path of the file."""
        return FOLDER / f"{self.slug}.md"


GUIDES = (
    Guide(USER_GUIDE, _l("User guide")),
    Guide("rest", _l("REST API")),
    Guide(ADMIN_GUIDE, _l("Administrator's guide"), _administrators),
    Guide("operations", _l("Operations"), _administrators),
    Guide("security", _l("Security"), _administrators),
    Guide("images", _l("Kernel images"), _administrators),
)


def readable_by(user: User) -> list[Guide]:
    """Return the guides that this user may read."""
    return [guide for guide in GUIDES if guide.rule(user)]
