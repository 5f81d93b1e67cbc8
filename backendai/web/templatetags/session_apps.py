"""The apps of a session, for its page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone

from backendai.cluster.site import site_settings
from backendai.compute.services.apps import App, app_domain, apps_of, main_kernel
from backendai.compute.services.public_apps import public_services
from backendai.web.app_reach import why_out_of_reach

register = template.Library()


@register.simple_tag(takes_context=True)
def app_list(context: Any) -> list[App]:
    """Return the apps of the context's ``session``; its ``kernels``, if they are there, spare a query."""
    session = context["session"]
    if session.is_terminal:
        return []
    kernels = context.get("kernels")
    kernel = next((one for one in kernels if one.rank == 0), None) if kernels is not None else main_kernel(session)
    return apps_of(session, kernel)


@register.simple_tag(takes_context=True)
def public_apps(context: Any) -> dict[str, datetime | None] | None:
    """Return the public apps by name, each with its end; None where the site does not allow public apps."""
    return public_services(context["session"], timezone.now()) if site_settings().public_apps else None


@register.filter
def end_of(public: dict[str, datetime | None], name: str) -> datetime | None:
    """Return when the public app of this name becomes private; None: with the end of the session."""
    return public.get(name)


@register.simple_tag(takes_context=True)
def app_reach(context: Any) -> str:
    """Return why this browser cannot open apps, and what an administrator sets; nothing when it can."""
    return why_out_of_reach(context["request"].get_host(), app_domain(context["session"]))
