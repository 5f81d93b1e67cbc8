"""Jupyter's pages are named after the session, so that the tabs of two sessions can be told apart. Notebooks
are made in the folder in which the session's programs start; the file browser goes up to the home."""

import os
from pathlib import Path
from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  (Jupyter gives it to its configuration)


def name_page(_handler: Any, page: dict[str, Any]) -> dict[str, Any]:
    """Return the page's settings with the session's name in place of the program's."""
    name = os.environ.get("BACKENDAI_SESSION_NAME", "")
    return page | {"appName": name} if name else page


def start_folder() -> Path:
    """Return the working directory, by the name that the shell has for it."""
    named = Path(os.environ.get("PWD") or "/nowhere")
    return named if named.is_dir() and named.samefile(".") else Path.cwd()


start, home = start_folder(), Path(os.environ.get("HOME") or "/")
c.ServerApp.root_dir = str(home if start.is_relative_to(home) else "/")
c.ServerApp.preferred_dir = str(start)
c.ServerApp.tornado_settings = {"page_config_hook": name_page}
