"""Which images there are, what each is made from, and when one must be made again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from backendai.base.core.version import VERSION
from images.builder.progress import Phase

IMAGES = Path(__file__).resolve().parent.parent
REPOSITORY = IMAGES.parent
SOURCE_LABEL = "backendai.source"
ROOT_LABEL = "backendai.root"


@dataclass(frozen=True)
class Recipe:
    """An image of ours, made from ``images/<name>`` on top of ``parent`` (None: a Debian root image). ``is_usual``: it
    is built when no image is named. ``content``: the paths of the repository that it is made from instead."""

    name: str
    parent: Recipe | None
    phase: Phase
    is_usual: bool = True
    content: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """Return the name under which the engine knows the image."""
        return f"backendai-{self.name}:{VERSION}" if self.content else f"local/backendai-{self.name}:latest"

    @property
    def folder(self) -> Path:
        """Return the folder that it is built from."""
        return REPOSITORY if self.content else IMAGES / self.name

    def source(self) -> str:
        """Return the hash of everything that the image is built from, its parent included."""
        parts = [self.parent.source()] if self.parent else []
        if self.content:
            first, *others = (REPOSITORY / name for name in self.content)
            return hash_folder(first, *parts, *(hash_folder(other) for other in others))
        return hash_folder(self.folder, *parts)

    def line(self) -> list[Recipe]:
        """Return the images that it stands on, the lowest first, and itself."""
        return [*(self.parent.line() if self.parent else []), self]


ROOT = Phase("root", weight=40, lines=460)
BASE = Recipe("base", None, Phase("base", weight=25, lines=700))
PYTHON = Recipe("python", BASE, Phase("python", weight=35, lines=300))
SCIENCE = Recipe("python-science", PYTHON, Phase("python-science", weight=90, lines=700))
SERVE = Recipe("serve", BASE, Phase("serve", weight=40, lines=200), is_usual=False)
# The platform itself, for docker-compose.yml.
PORTAL = Recipe(
    "portal",
    BASE,
    Phase("portal", weight=60, lines=900),
    is_usual=False,
    content=("Dockerfile", "requirements.txt", "manage.py", "backendai", "templates", "static", "locale", "docs"),
)
_IN_A_CLONE = (PORTAL,) if (REPOSITORY / "Dockerfile").exists() else ()  # an installed package has no Dockerfile
RECIPES = {recipe.name: recipe for recipe in (BASE, PYTHON, SCIENCE, SERVE, *_IN_A_CLONE)}  # parents first


def hash_folder(folder: Path, *more: str) -> str:
    """Return a short hash of the names, modes and contents of a folder's files (or of one file), and of ``more``."""
    digest = hashlib.sha256()
    for part in more:
        digest.update(f"{part}\n".encode())
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        if path.is_file() and "__pycache__" not in path.parts:
            executable = bool(path.stat().st_mode & 0o100)
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\n{executable}\n{len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def is_current(recipe: Recipe, labels: dict[str, str] | None, root: str) -> bool:
    """Return whether an image with these labels (None: there is none) is what the recipe would make now.

    ``root`` is the kind of root image that is asked for; ``auto`` is content with either.
    """
    if labels is None or labels.get(SOURCE_LABEL) != recipe.source():
        return False
    return root in ("auto", labels.get(ROOT_LABEL))
