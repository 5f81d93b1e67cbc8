"""The environment variables that every kernel gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from backendai.base.core.labels import label_variables
from backendai.base.core.service_ports import LABEL as SERVICES_LABEL
from backendai.base.core.slots import MILLI
from backendai.base.wire.cluster_network import Peer
from backendai.domain.cluster.site import SiteSettings
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.placing.cluster_access import launcher_environ

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


_CORE_COUNTS = "ai.backend.envs.corecount"
# Without these, numerical libraries start one thread for each core of the whole machine.
THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def environ_of(kernel: Kernel, peers: Sequence[Peer], site: SiteSettings) -> dict[str, str]:
    """Return a kernel's variables. The user's values override others, except for reserved names of the platform."""
    session, owner, image = kernel.session, kernel.session.owner, kernel.started_image
    hostnames = [peer.hostname for peer in peers]
    cores = str(max(1, ceil(kernel.amounts["cpu"] / MILLI)))
    named = [name.strip() for name in image.labels.get(_CORE_COUNTS, "").split(",")]
    counts = {name: cores for name in (*THREAD_COUNTS, *named) if name}
    platform = {
        "BACKENDAI_SESSION_ID": str(session.pk),
        "BACKENDAI_SESSION_NAME": session.name,
        "BACKENDAI_KERNEL_ID": str(kernel.pk),
        "BACKENDAI_KERNEL_IMAGE": image.reference,
        "BACKENDAI_USER_UUID": str(owner.pk),
        "BACKENDAI_USER_EMAIL": owner.email,
        "BACKENDAI_USER_NAME": owner.display_name,
        "BACKENDAI_ACCESS_KEY": session.access_key,
        "BACKENDAI_CLUSTER_SIZE": str(session.cluster_size),
        "BACKENDAI_CLUSTER_REPLICAS": _replicas(hostnames),
        "BACKENDAI_CLUSTER_HOSTS": ",".join(hostnames),
        "BACKENDAI_CLUSTER_HOST": kernel.hostname,
        "BACKENDAI_CLUSTER_ROLE": kernel.role,
        "BACKENDAI_CLUSTER_IDX": str(kernel.index),
        "BACKENDAI_CLUSTER_LOCAL_RANK": str(kernel.rank),
        "BACKENDAI_SERVICE_PORTS": image.effective_labels.get(SERVICES_LABEL, ""),
    }
    if session.preopen_ports:
        platform["BACKENDAI_PREOPEN_PORTS"] = ",".join(map(str, session.preopen_ports))
    if session.resumes:
        platform["BACKENDAI_RESUMED"] = str(session.resumes)
    if session.kind.is_served:
        platform["BACKENDAI_SERVING_PORT"] = session.environ.get("PORT", "")
    if kernel.command:
        platform["_BACKEND_BATCH_MODE"] = "1"
    chosen = kernel.variables
    usual = counts | launcher_environ(kernel, peers) | outside_environ(site, hostnames, chosen)
    return usual | chosen | platform | label_variables(session.labels)


def _replicas(hostnames: list[str]) -> str:
    """Return ``role:number of kernels`` of each role, joined by commas. A host name is a role with a number
    appended."""
    roles = Counter(hostname.rstrip("0123456789") for hostname in hostnames)
    return ",".join(f"{role}:{count}" for role, count in roles.items())
