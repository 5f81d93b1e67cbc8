"""The domains of apps: the site's, and those of resource groups."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings

from backendai.base.core.messages import Message

LONGEST = 180
COMMON_LABEL = "models"  # of the host name that all inference endpoints share
OUTPUT_LABEL = "output"  # of the one page in which pages that code has printed may run scripts
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org", "re"})
_DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def is_domain(text: str) -> bool:
    """Return whether the text is a domain name in lower case, without a port, and no IP address."""
    return len(text) <= LONGEST and bool(_DOMAIN.match(text))


def portal_names() -> set[str]:
    """Return the host names of the portal, without wildcards."""
    urls = [settings.PORTAL_URL, *settings.CSRF_TRUSTED_ORIGINS]
    names = {urlsplit(url).hostname or "" for url in urls} | {name.lower() for name in settings.ALLOWED_HOSTS}
    return {name for name in names if name and not name.startswith((".", "*"))}


def portal_origins() -> tuple[str, ...]:
    """Return the origins of the portal's own pages."""
    urls = [settings.PORTAL_URL, *settings.CSRF_TRUSTED_ORIGINS]
    told = {f"{url.scheme}://{url.netloc}" for url in map(urlsplit, urls) if "*" not in url.netloc}
    return tuple(sorted(told | {url.replace("//127.0.0.1:", "//localhost:") for url in told}))


def holds(domain: str, name: str) -> bool:
    """Return whether the name is the domain or one of its subdomains."""
    return name == domain or name.endswith(f".{domain}")


def shares_site(one: str, other: str) -> bool:
    """Return whether two names belong to the same registered domain, so that cookies can be set for both."""
    return _registered(one) == _registered(other) != ""


def _registered(name: str) -> str:
    labels = name.split(".")
    if len(labels) < 2 or labels[-1] == "localhost" or labels[-1].isdigit():
        return ""
    # co.uk, ac.kr and the like are registered one level further down.
    is_country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3:] if is_country else labels[-2:])


def wrong_app_domain(domain: str) -> str:
    """Return why a resource group cannot use this domain for its apps; empty if it can, or for an empty domain."""
    if not domain:
        return ""
    if not is_domain(domain):
        return Message(
            "{domain} is not a domain: enter a name such as gpu.apps.example.org, in lower case and without a port.",
            domain=repr(domain[:60]),
        )
    for name in sorted(portal_names()):
        if holds(domain, name):
            return Message(
                "{domain} contains the portal's own name {name}: an app could impersonate it.", domain=domain, name=name
            )
        if holds(name, domain) and name != "localhost" and not holds(settings.APPS_DOMAIN, domain):
            return Message(
                "{domain} is below the portal's name {name}: apps could send cookies to it. Choose one beside it.",
                domain=domain,
                name=name,
            )
    return ""


def app_domain_of(own: str) -> str:
    """Return the domain of a group's apps: its own, or the site's if that is empty."""
    return own or str(settings.APPS_DOMAIN)


def output_host() -> str:
    """Return the host name of the page that shows the output of code."""
    return f"{OUTPUT_LABEL}.{settings.APPS_DOMAIN}"


def origin_of(host: str) -> str:
    """Return the origin of a host under one of these domains, as browsers see it."""
    scheme, usual = ("https", 443) if settings.SECURE else ("http", 80)
    port = settings.APPS_PUBLIC_PORT
    return f"{scheme}://{host}" if port == usual else f"{scheme}://{host}:{port}"


def program_url(host: str, path: str) -> str:
    """Return where programs reach what a host serves: its origin; by the path if system resolvers lack the name."""
    if not holds("localhost", host):
        return origin_of(host)
    name = urlsplit(settings.PORTAL_URL).hostname or "127.0.0.1"
    return origin_of(f"[{name}]" if ":" in name else name) + path


def is_portal_origin(origin: str, portal: str) -> bool:
    """Return whether a browser's ``Origin`` is the portal's.

    Either it is trusted, or it is that of the host (with port) ``portal`` under which the user opened the portal.
    """
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    scheme, _, netloc = origin.partition("://")
    return bool(portal) and scheme == ("https" if settings.SECURE else "http") and netloc.lower() == portal
