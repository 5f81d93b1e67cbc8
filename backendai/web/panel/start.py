"""The start of the panel: its first page that the user may open."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect

from backendai.web.panel.access import panel_page
from backendai.web.panel.menu import has_menu, menu_for
from backendai.web.requests import PageRequest


@panel_page(has_menu)
def start(request: PageRequest) -> HttpResponse:
    """Redirect to the first page of the menu."""
    _, entries = menu_for(request.user)[0]
    return redirect(entries[0].address)
