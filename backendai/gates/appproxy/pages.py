"""Renders the app proxy's own pages, on the origin of an app. They need no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web
from django.conf import settings
from django.template.loader import render_to_string

from backendai.base.texts.messages import in_words
from backendai.gates.appproxy.programs import BY_TOKEN, PLACE

OWN = "/.backendai/"
_SAID = {"title", "message"}
OPEN_PATH = f"{OWN}open"
STYLE_PATH = f"{OWN}style.css"
_POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",  # without any, a browser would not say that our own form is ours
    "X-Content-Type-Options": "nosniff",
}
_STYLE = Path(settings.BASE_DIR) / "static" / "css" / "appproxy.css"


def page(status: int, **context: Any) -> web.Response:
    """Return a page with a title and a message. ``context`` can add a log, a link or an automatic reload."""
    said = {name: in_words(value) if name in _SAID else value for name, value in context.items()}
    body = render_to_string("appproxy/page.html", {"style": STYLE_PATH, **said})
    return web.Response(status=status, text=body, content_type="text/html", headers=_HEADERS)


def style() -> web.Response:
    """Return the pages' style sheet."""
    headers = _HEADERS | {"Cache-Control": "max-age=300"}
    return web.Response(text=_STYLE.read_text(), content_type="text/css", headers=headers)


def see_other(location: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return a redirect (303) that the browser follows with GET."""
    return web.Response(status=303, headers={**_HEADERS, "Location": location, **(headers or {})})


def refusal(
    request: web.BaseRequest,
    status: int,
    code: str,
    message: str,
    *,
    told: dict[str, str] | None = None,
    retry_after: int = 0,
    **context: Any,
) -> web.Response:
    """Return an error answer: a page for a person, JSON for a program, with what else it is ``told``."""
    if BY_TOKEN not in request and PLACE not in request and "text/html" in request.headers.get("Accept", ""):
        return page(status, message=message, **context)
    headers = _HEADERS | ({"Retry-After": str(retry_after)} if retry_after else {})
    return web.json_response({"code": code, "detail": message, **(told or {})}, status=status, headers=headers)
