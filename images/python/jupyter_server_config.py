"""Jupyter's pages are named after the session, so that the tabs of two sessions can be told apart."""

import os
from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  (Jupyter gives it to its configuration)


def name_page(_handler: Any, page: dict[str, Any]) -> dict[str, Any]:
    """Return the page's settings with the session's name in place of the program's."""
    name = os.environ.get("BACKENDAI_SESSION_NAME", "")
    return page | {"appName": name} if name else page


c.ServerApp.tornado_settings = {"page_config_hook": name_page}
