"""The apps of a session, for its page."""

from __future__ import annotations

from typing import Any

from django import template

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
def apps_for_everybody(context: Any) -> frozenset[str] | None:
    """Return the names of the apps that are open to everybody; None where the site does not allow it."""
    return public_services(context["session"]) if site_settings().public_apps else None


@register.simple_tag(takes_context=True)
def app_reach(context: Any) -> str:
    """Return why this browser cannot open apps, and what an administrator sets; nothing when it can."""
    return why_out_of_reach(context["request"].get_host(), app_domain(context["session"]))
