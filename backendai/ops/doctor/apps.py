"""Checks of the access to apps: the app proxy, and the host names that browsers must resolve."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from backendai.base.process.listeners import in_url, is_loopback, reached_at
from backendai.domain.cluster.models import ResourceGroup
from backendai.ops.doctor.check import Check, ok, warning

Resolve = Callable[[str, int], Any]


def apps() -> list[Check]:
    """Return whether the app proxy answers, and whether browsers can resolve the host names of apps."""
    return [app_proxy(), app_names(), *(app_names(domain) for domain in _of_groups())]


def app_proxy(port: int | None = None) -> Check:
    """Check that the app proxy answers."""
    number, asked = port or settings.APPS_PORT, reached_at(settings.APPS_HOST)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{in_url(asked)}:{number}/healthz", timeout=2) as answer:
            answer.read()
    except (OSError, urllib.error.URLError):
        fix = "./bin/up starts it; by itself: manage.py appproxy. BACKENDAI_APPS_PORT names its port."
        return warning("app proxy", f"nothing answers on {asked} port {number}: apps of sessions do not open", fix)
    return ok("app proxy", f"answers on port {number}")


def app_names(domain: str | None = None, host: str | None = None, resolve: Resolve = socket.getaddrinfo) -> Check:
    """Check that browsers can resolve the host names of apps. ``host`` is the address on which the portal listens."""
    domain = domain or settings.APPS_DOMAIN
    host = os.environ.get("BACKENDAI_HOST", "127.0.0.1") if host is None else host
    if domain == "localhost" or domain.endswith(".localhost"):
        if not host or is_loopback(host):
            return ok("app names", f"*.{domain} leads browsers on this machine here")
        fix = "Set BACKENDAI_APPS_DOMAIN=apps.example.org and point *.apps.example.org here in the DNS."
        return warning("app names", f"*.{domain} is found on this machine only, but others reach the portal", fix)
    try:
        resolve(f"any-name.{domain}", 80)
    except OSError:
        fix = f"Add a wildcard to the DNS: *.{domain} with the address of this machine (or of the proxy in front)."
        return warning("app names", f"*.{domain} is not found: apps of sessions do not open", fix)
    return ok("app names", f"*.{domain} is found")


def _of_groups() -> list[str]:
    """Return the app domains of resource groups; empty while the database is unreachable."""
    domains = ResourceGroup.objects.exclude(app_domain="").order_by("app_domain")
    try:
        return list(domains.values_list("app_domain", flat=True).distinct())
    except DatabaseError:
        return []
