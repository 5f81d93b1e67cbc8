"""Reads the caller of an endpoint from the headers of its request."""

from __future__ import annotations

from aiohttp import web
from django.conf import settings

from backendai.domain.serving.services.tokens import digest_of
from backendai.domain.storage.file_origins import folders_at
from backendai.gates.appproxy.headers import own_cookies
from backendai.gates.appproxy.hosts import has_id
from backendai.gates.appproxy.pages import OWN


def digest_in(request: web.BaseRequest) -> str:
    """Return the digest of the request's bearer token; empty if there is none."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return digest_of(text.strip()) if kind.lower() == "bearer" and text.strip() and text.isascii() else ""


def may_be_for_endpoint(request: web.BaseRequest, host: str) -> bool:
    """Return whether a request may be for an endpoint. Endpoints and apps have similar host names, but only browsers
    of apps send the proxy's cookies or ask for its own pages. Folders have host names of their own kind.
    """
    label, _, domain = host.partition(".")
    is_to_app = request.path.startswith(OWN) or bool(own_cookies(request.headers.get("Cookie", "")))
    return domain == settings.APPS_DOMAIN and has_id(label) and not is_to_app and folders_at(host) is None
