"""Asks the agent about the contents of a session's home folder, to show them before the session ends."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from backendai.base.core.errors import Overloaded
from backendai.base.wire.home import HomeLook
from backendai.domain.compute.models.sessions import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.gates.gateways.asking import NodeUnreachable, ask
from backendai.gates.gateways.tickets import address_of

logger = logging.getLogger(__name__)
_LARGEST_ANSWER = 4096


def home_of(session: ComputeSession) -> HomeLook | None:
    """Return the contents of the main kernel's home folder. None if the agent cannot answer within 6 seconds."""
    kernel: Kernel | None = session.kernels.select_related("agent").order_by("rank").first()
    if kernel is None or kernel.agent is None or kernel.status != Status.RUNNING:
        return None
    try:
        reply = ask(address_of(kernel, "home"), largest=_LARGEST_ANSWER, connect=2.0, read=4.0)
        return HomeLook.model_validate_json(reply.content) if reply.status == 200 else None
    except (NodeUnreachable, Overloaded, ValidationError) as error:
        logger.warning("agent %s does not tell what is in a home folder: %s", kernel.agent.name, error)
        return None
