"""Checks whether the user's browser can resolve the host names of apps."""

from __future__ import annotations

import ipaddress

from backendai.base.texts.translation import gettext as _


def why_out_of_reach(host: str, domain: str) -> str:
    """Return why the browser cannot reach the apps under ``domain``, with the remedy; empty if it can.

    ``host`` is the Host header under which the browser reached the portal.
    """
    if not _is_local(domain) or _is_local(_name_in(host)):
        return ""
    text = _(
        "Apps are served under %(domain)s, which only browsers on the portal's own machine can resolve. An "
        "administrator sets a name that yours can resolve: BACKENDAI_APPS_DOMAIN=apps.example.org, with "
        "*.apps.example.org in the DNS."
    )
    return text % {"domain": domain}


def _name_in(host: str) -> str:
    name, __, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).strip("[]").lower()


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
