"""Template tags for links from pages to sections of the guides."""

from __future__ import annotations

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from backendai.portal.web.account.menu import MENU
from backendai.portal.web.guides.documents import USER_GUIDE
from backendai.portal.web.guides.rendering import PREFIX

register = template.Library()


@register.simple_tag
def guide(anchor: str, slug: str = USER_GUIDE) -> SafeString:
    """Return the link *More in the guide* to a section, in a new tab so that typed input stays."""
    address = f"{reverse('web:help', args=[slug])}#{PREFIX}{anchor}"
    text = (
        '<a class="guide-link" href="{}" target="_blank" rel="noopener">{}<span class="visually-hidden"> {}</span></a>'
    )
    return format_html(text, address, _("More in the guide"), _("(opens in a new tab)"))


@register.simple_tag
def guide_to_account(address: str) -> SafeString:
    """Return the link to the guide for an account page, by the name of its route."""
    return guide(next(entry.guide for entry in MENU if entry.address == address))
