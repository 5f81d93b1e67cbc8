"""Template tags for the frame of the administration pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.template.context import Context
from django.utils.safestring import SafeString

from backendai.portal.web.admin.menu import MENU, menu_for
from backendai.portal.web.guides.documents import ADMIN_GUIDE
from backendai.portal.web.templatetags.guides import guide

register = template.Library()
_GUIDES = {page.section: page.guide for _, pages in MENU for page in pages}


@register.simple_tag(takes_context=True)
def panel_menu(context: Context) -> Sequence[tuple[Any, Any]]:
    """Return the groups of the menu with the pages that the user may open."""
    return menu_for(context["request"].user)


@register.simple_tag
def guide_to_panel(section: str) -> SafeString:
    """Return the link to the guide for an administration page, by its menu entry; empty for a page without one."""
    return guide(_GUIDES[section], ADMIN_GUIDE) if section in _GUIDES else SafeString("")
