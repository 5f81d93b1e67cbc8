"""What the steps of the scheduler and of a start are called on pages. In English they bear the names by which the
history, the log and REST know them."""

from __future__ import annotations

from django.utils.translation import pgettext_lazy

_NAMES = {
    # gates, in their order
    "sequencing": pgettext_lazy("scheduler step", "sequencing"),
    "kernels": pgettext_lazy("scheduler step", "kernels"),
    "offered": pgettext_lazy("scheduler step", "offered"),
    "image-architecture": pgettext_lazy("scheduler step", "image-architecture"),
    "start-time": pgettext_lazy("scheduler step", "start-time"),
    "dependencies": pgettext_lazy("scheduler step", "dependencies"),
    "session-type": pgettext_lazy("scheduler step", "session-type"),
    "image": pgettext_lazy("scheduler step", "image"),
    "concurrency": pgettext_lazy("scheduler step", "concurrency"),
    "limits": pgettext_lazy("scheduler step", "limits"),
    "network": pgettext_lazy("scheduler step", "network"),
    "amounts": pgettext_lazy("scheduler step", "amounts"),
    "capacity": pgettext_lazy("scheduler step", "capacity"),
    "queue": pgettext_lazy("scheduler step", "queue"),
    # filters of agents
    "designated": pgettext_lazy("scheduler step", "designated"),
    "alive": pgettext_lazy("scheduler step", "alive"),
    "schedulable": pgettext_lazy("scheduler step", "schedulable"),
    "architecture": pgettext_lazy("scheduler step", "architecture"),
    "node-image": pgettext_lazy("scheduler step", "node-image"),
    "max-kernels": pgettext_lazy("scheduler step", "max-kernels"),
    "slots": pgettext_lazy("scheduler step", "slots"),
    "devices": pgettext_lazy("scheduler step", "devices"),
    # what a node does
    "hand-over": pgettext_lazy("scheduler step", "hand-over"),
    "prepare": pgettext_lazy("scheduler step", "prepare"),
    "pull": pgettext_lazy("scheduler step", "pull"),
    "create": pgettext_lazy("scheduler step", "create"),
    "run": pgettext_lazy("scheduler step", "run"),
}


def name_of_step(step: str) -> str:
    """Return the name in the language of the page; a step that nobody knows any more keeps its own."""
    return str(_NAMES.get(step, step))
