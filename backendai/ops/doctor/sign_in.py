"""Checks of the provider of identities, where one is set up."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from django.conf import settings

from backendai.accounts.claims import wrong_mapping
from backendai.accounts.models import Project
from backendai.ops.doctor.check import Check, ok, problem, warning

_NAME = "single sign-on"
_LARGEST = 2**20


def single_sign_on() -> list[Check]:
    """Return whether the provider answers as what it is said to be, and whether the mapping's projects exist."""
    given = [settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET]
    if not any(given) and not settings.OIDC_MAPPING:
        return []
    if not all(given):
        fix = "Set BACKENDAI_OIDC_ISSUER, BACKENDAI_OIDC_CLIENT_ID and BACKENDAI_OIDC_CLIENT_SECRET, or none of them."
        return [problem(_NAME, "is set up by half", fix)]
    if wrong := wrong_mapping(settings.OIDC_MAPPING):
        return [problem(_NAME, "BACKENDAI_OIDC_MAPPING cannot be used", wrong)]
    return [_provider(settings.OIDC_ISSUER), _projects(settings.OIDC_MAPPING)]


def _provider(issuer: str) -> Check:
    url = f"{issuer}/.well-known/openid-configuration"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (the address is a setting)
            said = json.loads(answer.read(_LARGEST))
        named = str(said["issuer"]).rstrip("/")
    except (OSError, urllib.error.URLError, ValueError, LookupError, TypeError) as error:
        return problem(
            _NAME, f"{url} gives no usable answer ({error})", "Mend BACKENDAI_OIDC_ISSUER, or the way there."
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
        return warning("groups", f"there is no project {', '.join(missing)} yet", fix)
    return ok("groups", f"{len(mapping)} groups have a meaning")
