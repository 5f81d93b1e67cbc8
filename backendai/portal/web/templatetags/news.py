"""Template tags for notifications about sessions."""

from __future__ import annotations

from django import template

from backendai.portal.web.news import lines
from backendai.portal.web.session.actions import why_no_apps

register = template.Library()
register.filter("news_headline", lines.headline)
register.filter("news_sentence", lines.sentence)
register.filter("news_tone", lines.tone)
register.filter("news_icon", lines.icon_of)
register.filter("access_link", lines.access_link)
register.filter("why_no_apps", why_no_apps)
