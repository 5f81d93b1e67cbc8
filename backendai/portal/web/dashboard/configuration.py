"""The configuration for administrators: the settings of a fixed list, without secrets."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.durations import describe_duration
from backendai.base.core.slots import format_size

# What is shown at all. What is not named here is not shown, whatever it is called.
SHOWN: tuple[tuple[str | Promise, tuple[str, ...]], ...] = (
    (_l("Portal"), ("DEPLOYMENT", "PORTAL_URL", "DOOR_URL", "PORT", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "SECURE")),
    (_l("Apps of sessions"), ("APPS_DOMAIN", "APPS_HOST", "APPS_PORT", "APPS_PUBLIC_PORT")),
    (_l("Storage"), ("DATA_DIR", "REDIS_URL", "NODE_BROKER_URL")),
    (
        _l("Intervals"),
        ("PASS_INTERVAL", "REPAIR_INTERVAL", "OBSERVE_INTERVAL", "SYNC_INTERVAL", "AGENT_LOST_AFTER"),
    ),
    (
        _l("Sessions"),
        (
            "DEFAULT_SEQUENCE",
            "SCRATCH_BYTES",
            "DISK_RESERVE",
            "RATE_API",
            "RATE_PAGES",
            "RATE_LAUNCH",
            "RATE_LAUNCH_BURST",
        ),
    ),
    (_l("Secrets"), ("SECRET_KEY", "TICKET_KEY")),
)
_SIZES = ("SCRATCH_BYTES", "DISK_RESERVE")
_SECRET = re.compile(r"key|secret|password|token", re.IGNORECASE)


def effective_configuration() -> list[tuple[str | Promise, list[tuple[str, str]]]]:
    """Return the settings under headings, as names and texts without secrets."""
    return [(title, [(name, masked(name, getattr(settings, name, None))) for name in names]) for title, names in SHOWN]


def masked(name: str, value: Any) -> str:
    """Return a setting as text.

    Of a secret it says only whether it is set; of a URL it leaves out user, password and query.
    """
    if value in (None, "", [], ()):
        return _("not set")
    if _SECRET.search(name):
        return _("set, not shown")
    if name in _SIZES:
        return format_size(value)
    if isinstance(value, timedelta):
        return describe_duration(value)
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list | tuple):
        return ", ".join(masked(name, one) for one in value)
    text = str(value)
    return _without_credentials(text) if "://" in text else text


def _without_credentials(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return _("set, not shown")
    netloc = f"•••@{host}" if "@" in parts.netloc else host
    return f"{parts.scheme}://{netloc}{parts.path}"
