"""The guides for signed-in users, with a search."""

from __future__ import annotations

import logging
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.guides.documents import FOLDER, USER_GUIDE, Guide, readable_by
from backendai.portal.web.guides.rendering import Page, page_of
from backendai.portal.web.session.pages import asks_for_part

logger = logging.getLogger(__name__)

_LONGEST_SEARCH = 100


@signed_in("GET")
def guide(request: PageRequest, slug: str = USER_GUIDE) -> HttpResponse:
    """Show a guide. With ``?q=`` show the sections of all readable guides that contain every word, the best first."""
    guides = readable_by(request.user)
    chosen = next((one for one in guides if one.slug == slug), None)
    if chosen is None:
        raise Http404
    q = request.GET.get("q", "").strip()[:_LONGEST_SEARCH]
    context: dict[str, Any] = {"section": "help", "guides": guides, "guide": chosen, "q": q}
    context["page"] = _page(chosen, guides)
    if q:
        found = [(one, section) for one in guides for section in _page(one, guides).matching(q)]
        found.sort(key=lambda hit: hit[1].relevance(q), reverse=True)
        addresses = {one.slug: reverse("web:help", args=[one.slug]) for one in guides}
        context["found"] = [(one, part, addresses[one.slug], part.html_for(addresses[one.slug])) for one, part in found]
    return render(request, "web/_help_text.html" if asks_for_part(request) else "web/help.html", context)


@signed_in("GET")
def picture(request: PageRequest, name: str) -> HttpResponse:
    """Return a picture of the guides as PNG."""
    path = FOLDER / "screenshots" / f"{name}.png"
    if not path.is_file():
        raise Http404
    headers = {"Cache-Control": "private, max-age=3600"}
    return HttpResponse(path.read_bytes(), content_type="image/png", headers=headers)


def _page(guide: Guide, guides: list[Guide]) -> Page:
    try:
        return page_of(guide, guides)
    except OSError as error:
        logger.exception("the guide %s cannot be read", guide.path)
        raise Http404 from error
