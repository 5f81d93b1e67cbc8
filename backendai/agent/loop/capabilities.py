"""The capabilities that an agent reports to the portal."""

from __future__ import annotations

from backendai.agent.backends.abilities import capabilities_with
from backendai.agent.backends.base import Backend
from backendai.agent.jobs.handlers import handlers_for
from backendai.base.wire.node_jobs import CAPABILITY


def capabilities_of(backend: Backend) -> set[str]:
    """Return the capabilities of an agent with this backend, including the kinds of jobs it handles."""
    jobs = (f"{CAPABILITY}{handler.kind}" for handler in handlers_for(backend))
    return {*capabilities_with(backend), *jobs}
