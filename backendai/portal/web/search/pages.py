"""The search of every page, in a dialog (Ctrl-K) or as a page of its own."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.search.sources import found_by

_LONGEST = 100


@signed_in("GET")
def search(request: PageRequest) -> HttpResponse:
    """Show what ``?q=`` finds; for htmx only the hits."""
    text = request.GET.get("q", "").replace("\0", "").strip()[:_LONGEST]
    context = {"section": "search", "q": text, "found": found_by(request.user, text) if text else []}
    part = request.htmx and not request.htmx.boosted
    return render(request, "web/search/_hits.html" if part else "web/search/search.html", context)
