"""Checks of the identity provider and of the addresses of logins."""

from __future__ import annotations

import ipaddress
import json
import urllib.error
import urllib.request
from typing import Any

from django.conf import settings

from backendai.domain.accounts.claims import wrong_mapping
from backendai.domain.accounts.models import Login, Project
from backendai.ops.doctor.check import Check, ok, problem, warning

_NAME = "single sign-on"
_LARGEST = 2**20
_LOGINS_LOOKED_AT, _ENOUGH_PEOPLE = 50, 5


def single_sign_on() -> list[Check]:
    """Return whether the identity provider answers as configured, and whether the mapping's projects exist."""
    given = [settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET]
    if not any(given) and not settings.OIDC_MAPPING:
        return []
    if not all(given):
        fix = "Set BACKENDAI_OIDC_ISSUER, BACKENDAI_OIDC_CLIENT_ID and BACKENDAI_OIDC_CLIENT_SECRET, or none of them."
        return [problem(_NAME, "is set up by half", fix)]
    if wrong := wrong_mapping(settings.OIDC_MAPPING):
        return [problem(_NAME, "BACKENDAI_OIDC_MAPPING cannot be used", wrong)]
    return [_provider(settings.OIDC_ISSUER), _projects(settings.OIDC_MAPPING)]


def visitors() -> Check:
    """Check whether the addresses of logins are those of their users.

    Behind an unnamed proxy all have the proxy's address, so strangers who guess passwords make everybody wait.
    """
    name = "addresses of logins"
    rows = list(Login.objects.order_by("-created_at").values_list("user_id", "address")[:_LOGINS_LOOKED_AT])
    addresses, people = {address for _, address in rows}, {user for user, _ in rows}
    if len(people) < _ENOUGH_PEOPLE or len(addresses) > 1 or not _is_private(*addresses):
        return ok(name, "nothing odd")
    fix = "Set BACKENDAI_PROXIES to the address of the proxy in front, if there is one, and restart."
    return warning(name, f"the last {len(rows)} logins, of {len(people)} people, all come from {addresses.pop()}", fix)


def _is_private(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_private
    except ValueError:
        return False


def _provider(issuer: str) -> Check:
    url = f"{issuer}/.well-known/openid-configuration"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (the address is a setting)
            said = json.loads(answer.read(_LARGEST))
        named = str(said["issuer"]).rstrip("/")
    except (OSError, urllib.error.URLError, ValueError, LookupError, TypeError) as error:
        return problem(
            _NAME, f"{url} gives no usable answer ({error})", "Correct BACKENDAI_OIDC_ISSUER, or the route to it."
        )
    if named != issuer:
        fix = f"Set BACKENDAI_OIDC_ISSUER={named} if that is who you mean."
        return warning(_NAME, f"{issuer} calls itself {named}", fix)
    return ok(_NAME, f"{issuer} answers")


def _projects(mapping: dict[str, dict[str, Any]]) -> Check:
    named = {(grant["domain"], grant["project"]) for grant in mapping.values() if "project" in grant}
    there = set(Project.objects.filter(domain__name__in=[one for one, _ in named]).values_list("domain__name", "name"))
    if missing := sorted("/".join(one) for one in named - there):
        fix = "Check their names in BACKENDAI_OIDC_MAPPING: the first sign-in with such a group makes the project."
        return warning("groups", f"no project is named {', '.join(missing)} yet", fix)
    return ok("groups", f"{len(mapping)} groups have a meaning")
