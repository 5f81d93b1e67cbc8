"""What is in a session's home folder, asked of its node: for people who are about to lose it."""

from __future__ import annotations

import logging

import urllib3
from pydantic import ValidationError

from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.gateway import address_of
from backendai.compute.status import Status
from backendai.wire.home import HomeLook

logger = logging.getLogger(__name__)
_LARGEST_ANSWER = 4096
_pool = urllib3.PoolManager(
    num_pools=64, maxsize=2, timeout=urllib3.Timeout(connect=2.0, read=4.0), retries=urllib3.Retry(0, redirect=False)
)


def home_of(session: ComputeSession) -> HomeLook | None:
    """Return what the home folder of the main kernel holds; None where the node cannot tell, or not in 6 seconds."""
    kernel: Kernel | None = session.kernels.select_related("agent").order_by("rank").first()
    if kernel is None or kernel.agent is None or kernel.status != Status.RUNNING:
        return None
    address = address_of(kernel, "home")
    try:
        answer = _pool.request("GET", address.url, headers=address.headers, preload_content=False)
        content = answer.read(_LARGEST_ANSWER)
        answer.close()
        return HomeLook.model_validate_json(content) if answer.status == 200 else None
    except (urllib3.exceptions.HTTPError, ValidationError) as error:
        logger.warning("agent %s does not tell what is in a home folder: %s", kernel.agent.name, error)
        return None
