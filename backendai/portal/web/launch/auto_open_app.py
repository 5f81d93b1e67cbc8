"""The app that a launch opens as soon as its session runs."""

from __future__ import annotations

from backendai.base.core.service_ports import service_ports_of
from backendai.domain.catalog.models import Image

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
