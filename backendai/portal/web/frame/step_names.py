"""The names of the steps of scheduler and starts on pages. The history, the log and REST use their codes."""

from __future__ import annotations

from django.utils.translation import pgettext_lazy

_NAMES = {
    # gates, in their order
    "sequencing": pgettext_lazy("scheduler step", "order of the queue"),
    "kernels": pgettext_lazy("scheduler step", "kernels together"),
    "offered": pgettext_lazy("scheduler step", "resources on offer"),
    "image-architecture": pgettext_lazy("scheduler step", "architecture of the image"),
    "start-time": pgettext_lazy("scheduler step", "start time"),
    "dependencies": pgettext_lazy("scheduler step", "sessions to wait for"),
    "session-type": pgettext_lazy("scheduler step", "type of the session"),
    "image": pgettext_lazy("scheduler step", "state of the image"),
    "concurrency": pgettext_lazy("scheduler step", "number of sessions"),
    "limits": pgettext_lazy("scheduler step", "limits of amounts"),
    "network": pgettext_lazy("scheduler step", "network between agents"),
    "amounts": pgettext_lazy("scheduler step", "amounts of accelerators"),
    "capacity": pgettext_lazy("scheduler step", "size of the agents"),
    "queue": pgettext_lazy("scheduler step", "sessions ahead"),
    # filters of agents
    "designated": pgettext_lazy("scheduler step", "chosen agents"),
    "architecture": pgettext_lazy("scheduler step", "architecture of the agents"),
    "containers": pgettext_lazy("scheduler step", "agents with containers"),
    "disk": pgettext_lazy("scheduler step", "disk space for the image"),
    "node-image": pgettext_lazy("scheduler step", "image on the agent"),
    "storage": pgettext_lazy("scheduler step", "folders on the agent"),
    "cluster-network": pgettext_lazy("scheduler step", "network over several agents"),
    "alive": pgettext_lazy("scheduler step", "reachable agents"),
    "schedulable": pgettext_lazy("scheduler step", "agents that take sessions"),
    "fault": pgettext_lazy("scheduler step", "agents without a fault"),
    "draining": pgettext_lazy("scheduler step", "agents that are not drained"),
    "max-kernels": pgettext_lazy("scheduler step", "kernels per agent"),
    "slots": pgettext_lazy("scheduler step", "free resources on an agent"),
    "devices": pgettext_lazy("scheduler step", "devices that can be combined"),
    "selection": pgettext_lazy("scheduler step", "choice of the agent"),
    # what a node does
    "hand-over": pgettext_lazy("scheduler step", "sending to the agent"),
    "pull": pgettext_lazy("scheduler step", "pulling the image"),
    "create": pgettext_lazy("scheduler step", "creating the kernel"),
    "run": pgettext_lazy("scheduler step", "running"),
}


def name_of_step(step: str) -> str:
    """Return the translated name of a step; an unknown step keeps its code."""
    return str(_NAMES.get(step, step))
