"""Host names of apps, as requests bring them."""

from __future__ import annotations

import re

from django.conf import settings

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def app_host(header: str) -> str | None:
    """Return the host name without its port if it is one that an app may have, else None."""
    name = header.rpartition(":")[0] if re.search(r":\d+\Z", header) else header
    label, dot, domain = name.lower().rstrip(".").partition(".")
    return f"{label}.{domain}" if dot and domain == settings.APPS_DOMAIN and _LABEL.match(label) else None
