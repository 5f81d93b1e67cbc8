"""The page *About*: version, licence, other people's work, and what comes with the portal to read."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _l

from backendai.portal.web.frame.build import build_text
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.guides.documents import Guide, readable_by
from backendai.portal.web.guides.rendering import page_of

DOCUMENTS = (
    Guide("changelog", _l("Changelog"), file="CHANGELOG.md"),
    Guide("security-policy", _l("Security policy"), file="SECURITY.md"),
)


@signed_in("GET")
def about(request: PageRequest) -> HttpResponse:
    """Show the page; a file that an installation left out is left out of it."""
    guides = readable_by(request.user)
    context = {
        "section": "about",
        "build": build_text(),
        "guides": guides,
        "documents": [(one, page_of(one, guides)) for one in DOCUMENTS if one.path.is_file()],
        "others_work": _text("NOTICE"),
        "licence": _text("LICENSE"),
    }
    return render(request, "web/about.html", context)


def _text(name: str) -> str:
    path = Path(settings.BASE_DIR) / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""
