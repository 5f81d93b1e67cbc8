"""Computes variables that direct programs in sessions to the site's package indexes and proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backendai.domain.cluster.site import SiteSettings

_ALWAYS_DIRECT = ("localhost", "127.0.0.1", "::1")


def outside_environ(site: SiteSettings, hostnames: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the site's variables, except variables that ``chosen`` sets in upper or lower case. Some programs read
    ``http_proxy`` and others ``HTTP_PROXY``, so both are set."""
    found = {
        "PIP_INDEX_URL": site.package_index,
        "UV_DEFAULT_INDEX": site.package_index,
        "PIP_EXTRA_INDEX_URL": " ".join(site.package_extra_indexes),
        "UV_INDEX": " ".join(site.package_extra_indexes),
        "PIP_TRUSTED_HOST": " ".join(site.package_trusted_hosts),
        "UV_INSECURE_HOST": " ".join(site.package_trusted_hosts),
        "HTTP_PROXY": site.session_http_proxy,
        "HTTPS_PROXY": site.session_https_proxy,
    }
    if site.session_http_proxy or site.session_https_proxy:
        found["NO_PROXY"] = ",".join(dict.fromkeys([*_ALWAYS_DIRECT, *hostnames, *site.session_no_proxy]))
    found |= {name.lower(): found[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") if name in found}
    own = {name.upper() for name in chosen}
    return {name: value for name, value in found.items() if value and name.upper() not in own}
