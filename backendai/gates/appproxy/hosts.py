"""Reads the host names of apps from requests."""

from __future__ import annotations

import re

from django.conf import settings

from backendai.domain.cluster.app_domains import holds, is_domain, portal_names

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_WITH_ID = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{12}\Z")


def app_host(header: str) -> str | None:
    """Return the host name without its port if it can belong to an app, else None.

    Under the site's domain any name can. Under the domains of resource groups it must end with an id; codes and
    cookies, each for one whole name, then decide.
    """
    name = header.rpartition(":")[0] if re.search(r":\d+\Z", header) else header
    label, dot, domain = name.lower().rstrip(".").partition(".")
    if not dot or not _LABEL.match(label):
        return None
    if domain == settings.APPS_DOMAIN:
        return f"{label}.{domain}"
    is_foreign = is_domain(domain) and not any(holds(domain, name) for name in portal_names())
    return f"{label}.{domain}" if is_foreign and has_id(label) else None


def has_id(label: str) -> bool:
    """Return whether the first label of a host name ends with the id of a session or an endpoint."""
    return bool(_WITH_ID.match(label))
