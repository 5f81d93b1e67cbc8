"""System checks that reject settings which cannot work, with an id and the remedy."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from backendai.base.wire.cluster_network import most_networks
from backendai.domain.accounts.claims import wrong_mapping
from backendai.domain.cluster.app_domains import holds, is_domain, portal_names, shares_site
from backendai.domain.compute.services.records.logs import LARGEST
from backendai.gates.gateways.site_keys import host_key
from backendai.ops.run.data_folder import DEMO_MARK

SETTINGS = "settings"  # the tag of the checks that are made before a start, too

_LAST_PORT = 65535
_LEAST_TOKEN = 20  # characters
_BIND = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
_LABEL = r"([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"([a-z0-9]{_LABEL}\.)*[a-z]{_LABEL}\Z", re.IGNORECASE)  # no mistyped address


@register(SETTINGS)
def check_secrets(**kwargs: Any) -> list[CheckMessage]:
    """Check that the secret key is long enough, and the ticket key can sign."""
    found: list[CheckMessage] = []
    if len(settings.SECRET_KEY) < 32:
        found.append(
            Error("BACKENDAI_SECRET_KEY is too short.", "Use at least 32 random characters.", id="portal.E001")
        )
    if any(len(key) < 32 for key in settings.SECRET_KEY_FALLBACKS):
        hint = "Write whole earlier values of BACKENDAI_SECRET_KEY, separated by commas, or leave it empty."
        found.append(Error("BACKENDAI_SECRET_KEY_FALLBACKS holds a short key.", hint, id="portal.E015"))
    try:
        load_pem_private_key(settings.TICKET_KEY.replace("\\n", "\n").encode(), password=None)
    except (ValueError, TypeError):
        hint = "Set BACKENDAI_TICKET_KEY to an Ed25519 private key in PEM, or unset BACKENDAI_SECRET_KEY too."
        found.append(Error("BACKENDAI_TICKET_KEY is not a private key.", hint, id="portal.E002"))
    return found


@register(SETTINGS)
def check_demo(**kwargs: Any) -> list[CheckMessage]:
    """Check that only a demonstration of ``bin/up --demo`` lets people in without a password."""
    if not settings.DEMO or (settings.DATA_DIR / DEMO_MARK).exists():
        return []
    hint = "Unset it, and start a demonstration with bin/up --demo: it has a data folder of its own."
    return [Error("BACKENDAI_DEMO is set for a deployment that is none.", hint, id="portal.E036")]


@register(SETTINGS)
def check_addresses(**kwargs: Any) -> list[CheckMessage]:
    """Check that the addresses of the portal and the broker are valid."""
    found: list[CheckMessage] = []
    if urlsplit(settings.PORTAL_URL).scheme not in ("http", "https"):
        hint = "Write it as http://host:port or https://host."
        found.append(Error("BACKENDAI_PORTAL_URL is not a web address.", hint, id="portal.E003"))
    if urlsplit(settings.DOOR_URL).scheme not in ("http", "https"):
        hint = "Write it as http://host:port: there the control worker sees whether agents can reach the portal."
        found.append(Error("BACKENDAI_DOOR_URL is not a web address.", hint, id="portal.E014"))
    if urlsplit(settings.FILES_URL).scheme not in ("http", "https"):
        hint = "Write it as http://host:port: there the portal reaches the file server of this machine."
        found.append(Error("BACKENDAI_FILES_URL is not a web address.", hint, id="portal.E017"))
    prometheus = urlsplit(settings.PROMETHEUS_URL)
    if settings.PROMETHEUS_URL and (prometheus.scheme not in ("http", "https") or not prometheus.hostname):
        hint = "Write it as http://host:9090, or leave it empty: then no scaling rule can ask Prometheus."
        found.append(Error("BACKENDAI_PROMETHEUS_URL is not a web address.", hint, id="portal.E033"))
    if urlsplit(settings.REDIS_URL).scheme not in ("redis", "rediss", "unix"):
        hint = "Write it as redis://host:port/0 or unix:///path."
        found.append(Error("REDIS_URL is not a Redis address.", hint, id="portal.E004"))
    found += _wrong_cluster_pool(settings.CLUSTER_POOL)
    for proxy in settings.PROXIES:
        if not _is_network(proxy):
            hint = "Name each proxy by its address or network, such as 10.0.0.5 or 10.0.0.0/24, separated by commas."
            found.append(Error(f"BACKENDAI_PROXIES: {proxy!r} is not an address.", hint, id="portal.E016"))
    for origin in settings.CSRF_TRUSTED_ORIGINS:
        if urlsplit(origin).scheme not in ("http", "https") or "*" in origin:
            hint = "Name each origin whole: apps of users may live under neighbouring names."
            found.append(Error(f"BACKENDAI_TRUSTED_ORIGINS: {origin!r} cannot be used.", hint, id="portal.E005"))
    return found


@register(SETTINGS)
def check_metrics(**kwargs: Any) -> list[CheckMessage]:
    """Check who may scrape the metrics."""
    found: list[CheckMessage] = []
    for network in settings.METRICS_NETWORKS:
        if not _is_network(network):
            hint = "Name each scraper by its address or network, such as 10.0.0.5 or 10.0.0.0/24, separated by commas."
            found.append(Error(f"BACKENDAI_METRICS_NETWORKS: {network!r} is not a network.", hint, id="portal.E034"))
    if settings.METRICS_TOKEN and len(settings.METRICS_TOKEN) < _LEAST_TOKEN:
        hint = f"Use at least {_LEAST_TOKEN} characters, for example of: openssl rand -hex 32"
        found.append(Error("BACKENDAI_METRICS_TOKEN is too short.", hint, id="portal.E035"))
    for name in ("CONTROL_METRICS", "SSH_METRICS"):
        if (told := getattr(settings, name)) and not _BIND.fullmatch(told):
            hint = "Write address:port, such as 127.0.0.1:9100."
            found.append(Error(f"BACKENDAI_{name}: {told!r} cannot be listened on.", hint, id="portal.E036"))
    return found


def _is_network(text: str) -> bool:
    try:
        return ipaddress.ip_network(text).prefixlen > 0
    except ValueError:
        return False


@register(SETTINGS)
def check_apps(**kwargs: Any) -> list[CheckMessage]:
    """Check that the domain of apps shares nothing with the portal's names."""
    domain, found = settings.APPS_DOMAIN, list[CheckMessage]()
    if not is_domain(domain):
        hint = "Write it as apps.example.org: a name, no port, no address. Each app gets a name under it."
        return [Error("BACKENDAI_APPS_DOMAIN is not a domain name.", hint, id="portal.E011")]
    for name in portal_names():
        if holds(domain, name):
            hint = "Take a domain that does not hold the portal itself: apps could stand in for it."
            found.append(Error(f"BACKENDAI_APPS_DOMAIN holds the portal's own name {name}.", hint, id="portal.E012"))
        elif holds(name, domain) and name != "localhost":
            hint = f"Apps can send cookies to {name}. A domain beside it, such as apps-of-{name}, cannot."
            found.append(Warning("BACKENDAI_APPS_DOMAIN lies under the portal's name.", hint, id="portal.W011"))
    if not found and not settings.SECURE and domain != "localhost" and not domain.endswith(".localhost"):
        hint = "Set BACKENDAI_HTTPS=1 behind a proxy with TLS: over plain HTTP an app can set its neighbours' cookies."
        found.append(Warning("Apps are opened over plain HTTP.", hint, id="portal.W012"))
        if shared := [name for name in sorted(portal_names()) if shares_site(name, domain)]:
            hint = "Use HTTPS or another registered domain: over plain HTTP apps can set the portal's cookies."
            text = f"BACKENDAI_APPS_DOMAIN shares its registered domain with the portal's name {shared[0]}."
            found.append(Warning(text, hint, id="portal.W013"))
    for port in (settings.APPS_PORT, settings.APPS_PUBLIC_PORT):
        if not 1 <= port <= _LAST_PORT or port == settings.PORT:
            hint = "BACKENDAI_APPS_PORT and BACKENDAI_APPS_PUBLIC_PORT are numbers from 1 to 65535, not the portal's."
            found.append(Error(f"Apps cannot have port {port}.", hint, id="portal.E013"))
    return found


@register(SETTINGS)
def check_ssh(**kwargs: Any) -> list[CheckMessage]:
    """Check that the SSH gate has its own port, a valid host key, and valid addresses of proxies."""
    found: list[CheckMessage] = []
    if settings.SSH_PORT in (settings.PORT, settings.APPS_PORT):
        hint = "Take another BACKENDAI_SSH_PORT than the portal's and that of apps."
        found.append(Error(f"SSH cannot have port {settings.SSH_PORT}.", hint, id="portal.E018"))
    for proxy in settings.SSH_PROXIES:
        if not _is_network(proxy) and not _HOST_NAME.match(proxy):
            hint = "Name each proxy by its address, network or host name: 10.0.0.5, 10.0.0.0/24 or haproxy.example.org."
            text = f"BACKENDAI_SSH_PROXIES: {proxy!r} is not an address, network or host name."
            found.append(Error(text, hint, id="portal.E019"))
    try:
        host_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        hint = "Write what ssh-keygen -t ed25519 makes, without a passphrase, or leave it out."
        found.append(Error("BACKENDAI_SSH_HOST_KEY is not an Ed25519 private key.", hint, id="portal.E020"))
    return found


@register(SETTINGS)
def check_compat(**kwargs: Any) -> list[CheckMessage]:
    """Warn if only people on this machine can use the official client, as its signature covers no body."""
    if not settings.COMPAT or settings.SECURE or settings.LISTENS_HERE_ONLY:
        return []
    hint = "Put the portal behind a proxy with TLS and set BACKENDAI_HTTPS=1, or unset BACKENDAI_COMPAT."
    text = "BACKENDAI_COMPAT is set, but without HTTPS requests of Backend.AI's client from other machines are refused."
    return [Warning(text, hint, id="portal.W014")]


@register(SETTINGS)
def check_mail(**kwargs: Any) -> list[CheckMessage]:
    """Check the address of the mail server, and the sender's address."""
    found: list[CheckMessage] = []
    if settings.EMAIL_URL and urlsplit(settings.EMAIL_URL).scheme not in settings.EMAIL_SCHEMES:
        hint = "Write it as smtp+tls://user:password@host:587, or leave it out."
        found.append(Error("BACKENDAI_EMAIL_URL is not the address of a mail server.", hint, id="portal.E031"))
    if settings.EMAIL_URL and "@" not in settings.DEFAULT_FROM_EMAIL:
        hint = "Write it as portal@example.org."
        found.append(Error("BACKENDAI_EMAIL_FROM is not an e-mail address.", hint, id="portal.E032"))
    return found


@register(SETTINGS)
def check_times(**kwargs: Any) -> list[CheckMessage]:
    """Check that agents count as lost only after several missed syncs."""
    if settings.SYNC_INTERVAL * 3 > settings.AGENT_LOST_AFTER:
        hint = "Keep BACKENDAI_AGENT_LOST_AFTER at three times BACKENDAI_SYNC_INTERVAL or more."
        return [Error("Agents would be lost after a single late sync.", hint, id="portal.E006")]
    return []


@register(SETTINGS)
def check_usage(**kwargs: Any) -> list[CheckMessage]:
    """Check that fine usage samples are not kept longer than all."""
    if settings.USAGE_FINE_FOR > settings.USAGE_KEPT_FOR:
        hint = "BACKENDAI_USAGE_FINE_HOURS is not more than BACKENDAI_USAGE_DAYS."
        return [Error("Samples of what sessions use would never be thinned.", hint, id="portal.E051")]
    return []


@register(SETTINGS)
def check_retention(**kwargs: Any) -> list[CheckMessage]:
    """Check that the limit of an owner's logs allows one log of the largest size.

    Otherwise the newest log would be deleted at once.
    """
    if 0 < settings.LOG_BYTES_PER_OWNER < LARGEST:
        hint = f"BACKENDAI_LOG_BYTES_PER_OWNER is in bytes: use {LARGEST} or more, or 0 for no limit."
        return [Error("The logs of an owner have less room than one log.", hint, id="portal.E053")]
    return []


@register(SETTINGS)
def check_sign_in(**kwargs: Any) -> list[CheckMessage]:
    """Check the settings of sign-up, second factors and the identity provider."""
    found: list[CheckMessage] = []
    if settings.SIGNUP not in ("off", "approval"):
        hint = "Write off, or approval: people ask, and an administrator lets them in."
        found.append(Error(f"BACKENDAI_SIGNUP cannot be {settings.SIGNUP!r}.", hint, id="portal.E021"))
    if settings.REQUIRE_MFA not in ("none", "admins", "all"):
        hint = "Write none, admins or all."
        found.append(Error(f"BACKENDAI_REQUIRE_MFA cannot be {settings.REQUIRE_MFA!r}.", hint, id="portal.E022"))
    return found + _check_provider()


def _check_provider() -> list[CheckMessage]:
    """Check that the identity provider is configured completely or not at all."""
    names = {
        "BACKENDAI_OIDC_ISSUER": settings.OIDC_ISSUER,
        "BACKENDAI_OIDC_CLIENT_ID": settings.OIDC_CLIENT_ID,
        "BACKENDAI_OIDC_CLIENT_SECRET": settings.OIDC_CLIENT_SECRET,
        "BACKENDAI_OIDC_MAPPING": settings.OIDC_MAPPING,
    }
    if not any(names.values()):
        return []
    missing = [name for name, value in names.items() if not value]
    if missing:
        hint = "Set all four, or none of them."
        return [Error(f"Single sign-on lacks {', '.join(missing)}.", hint, id="portal.E023")]
    found: list[CheckMessage] = []
    if wrong := wrong_mapping(settings.OIDC_MAPPING):
        found.append(Error("BACKENDAI_OIDC_MAPPING cannot be used.", wrong, id="portal.E024"))
    issuer = urlsplit(settings.OIDC_ISSUER)
    if issuer.scheme != "https" and issuer.hostname not in ("localhost", "127.0.0.1", "::1"):
        hint = "Write it as https://identities.example.org: who reads or changes that traffic can sign in as anybody."
        found.append(Error("BACKENDAI_OIDC_ISSUER is not an HTTPS address.", hint, id="portal.E025"))
    return found


@register(deploy=True)
def check_https(**kwargs: Any) -> list[CheckMessage]:
    """Warn if the portal is served without HTTPS."""
    if settings.SECURE:
        return []
    hint = "Put it behind a proxy with TLS and set BACKENDAI_HTTPS=1."
    return [Warning("Passwords and terminals travel in clear text.", hint, id="portal.W001")]


def _wrong_cluster_pool(pool: str) -> list[CheckMessage]:
    try:
        most = most_networks(pool)
    except ValueError:
        most = 0
    if most:
        return []
    hint = "Write IPv4 addresses as 10.88.0.0/16, at least a /26, that no network of your agents uses."
    return [Error(f"BACKENDAI_CLUSTER_POOL: {pool!r} cannot be cut into networks.", hint, id="portal.E030")]
