"""Where the platform's own files are, and its data unless somebody says so.

A clone has templates, static files and documents beside the package, and keeps its data in ``var``. In an installed
package ``pyproject.toml`` puts those files into the package; the data of people stays out of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from backendai.base.core.errors import UserError

PACKAGE = Path(__file__).resolve().parents[2]
IMPORTED_FROM = PACKAGE.parent  # the entry of sys.path with which other processes import the platform
_CARRIED = PACKAGE / "_platform"
IS_CLONE = not _CARRIED.is_dir()
FILES = IMPORTED_FROM if IS_CLONE else _CARRIED
CODE = IMPORTED_FROM if IS_CLONE else PACKAGE  # all of the platform, and of nobody else
IMPORT_PATH = {"PYTHONPATH": str(IMPORTED_FROM)} if IS_CLONE else {}  # variables for processes of other folders
COMMAND = ".venv/bin/python manage.py" if IS_CLONE else "backendai"
_OF_ROOT = Path("/var/lib/backendai")


def usual_data() -> Path:
    """Return the data folder of a start that names none. Raises UserError for a user without a home."""
    if IS_CLONE:
        return FILES / "var"
    if os.geteuid() == 0:
        return _OF_ROOT
    told = Path(os.environ.get("XDG_DATA_HOME", ""))
    if told.is_absolute():
        return told / "backendai"
    try:
        return Path.home() / ".local" / "share" / "backendai"
    except RuntimeError as error:
        message = "This user has no home folder for the data: set BACKENDAI_DATA to a folder."
        raise UserError(message, field="BACKENDAI_DATA") from error


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return ``BACKENDAI_DATA``, else the usual folder, as an absolute path. Raises UserError."""
    return Path(environ.get("BACKENDAI_DATA") or usual_data()).absolute()


def dotenv_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder whose ``.env`` is read: of the clone, else of the data. Raises UserError."""
    return FILES if IS_CLONE else data_folder(environ)
