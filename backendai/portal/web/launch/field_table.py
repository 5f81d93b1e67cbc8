"""How the launcher treats each field of its form. What a field takes stands at the field, and in ``SessionSpec``."""

from __future__ import annotations

from typing import NamedTuple

TYPE, RESOURCES, DATA, NETWORK, REVIEW = range(1, 6)


class LaunchField(NamedTuple):
    """A row of the table.

    ``in_address``: the page's address stores it. ``is_copied``: "launch again" takes the value of the earlier request
    as it is. ``is_owners``: what was chosen means nothing for another owner. ``of_environment``: the review shows it
    beside the image. ``is_plain``: ``SessionSpec`` has a field of this name, which takes the value as it is. ``needs``:
    the feature without which a kind of sessions has no such value.
    """

    step: int
    in_address: bool = True
    is_copied: bool = False
    is_owners: bool = False
    of_environment: bool = False
    is_plain: bool = False
    needs: str = ""


AMOUNT = LaunchField(RESOURCES)  # also of each slot, which has a field while the form lives
_HIDDEN = LaunchField(RESOURCES, in_address=False)  # sent by the page itself
LAUNCH_FIELDS = {
    "session_type": LaunchField(TYPE, is_plain=True),
    "name": LaunchField(TYPE, is_copied=True, is_plain=True),
    "startup_command": LaunchField(TYPE, is_copied=True, is_plain=True, needs="runs_program"),
    "files": LaunchField(TYPE),
    "array_size": LaunchField(TYPE, is_copied=True),
    "matrix": LaunchField(TYPE),
    "retries": LaunchField(TYPE, is_copied=True),
    "starts_at": LaunchField(TYPE, is_plain=True, needs="runs_program"),
    "batch_timeout": LaunchField(TYPE, is_plain=True, needs="runs_program"),
    "priority": LaunchField(TYPE, is_copied=True, is_plain=True),
    "retry_on_agent_loss": LaunchField(TYPE, is_copied=True, is_plain=True, needs="runs_again"),
    "may_be_stopped": LaunchField(TYPE, is_copied=True, is_plain=True, needs="stops_by_choice"),
    "depends_on": LaunchField(TYPE, is_copied=True, is_owners=True),
    "depends_when": LaunchField(TYPE, is_copied=True),
    "labels": LaunchField(TYPE, is_copied=True, is_plain=True),
    "note": LaunchField(TYPE, is_copied=True, is_plain=True),
    "owner": LaunchField(TYPE, in_address=False, is_owners=True, is_plain=True),
    "access_key": LaunchField(TYPE, in_address=False, is_copied=True, is_owners=True, is_plain=True),
    "project": LaunchField(RESOURCES, is_copied=True, is_owners=True, of_environment=True),
    "resource_group": LaunchField(RESOURCES, is_copied=True, is_owners=True),
    "image": LaunchField(RESOURCES, is_copied=True, is_owners=True, of_environment=True),
    "manual_image": LaunchField(RESOURCES, of_environment=True),
    "environ": LaunchField(RESOURCES, of_environment=True),
    "threads": AMOUNT,
    "omp_threads": AMOUNT,
    "openblas_threads": AMOUNT,
    "preset": LaunchField(RESOURCES, is_owners=True),
    "cpu": AMOUNT,
    "mem": AMOUNT,
    "mem_unit": AMOUNT,
    "shm": LaunchField(RESOURCES, is_copied=True),
    "shm_unit": AMOUNT,
    "count": LaunchField(RESOURCES, is_copied=True),
    "cluster_size": LaunchField(RESOURCES, is_copied=True, is_plain=True),
    "cluster_mode": LaunchField(RESOURCES, is_copied=True, is_plain=True),
    "command_in": LaunchField(RESOURCES, is_copied=True, is_plain=True, needs="runs_program"),
    "agents": LaunchField(RESOURCES, is_owners=True),
    "roles": LaunchField(RESOURCES, is_plain=True),
    "done_when": LaunchField(RESOURCES, is_copied=True, is_plain=True, needs="runs_program"),
    "mounts": LaunchField(DATA),
    "start_in": LaunchField(DATA),
    "mounts_search": LaunchField(DATA, in_address=False),
    "mounts_sort": LaunchField(DATA, in_address=False),
    "preopen_ports": LaunchField(NETWORK, is_copied=True, is_plain=True),
    "replaces": LaunchField(REVIEW, is_owners=True),
    "template": LaunchField(RESOURCES, in_address=False, is_copied=True),
    "parameters": _HIDDEN,
    "unshown": _HIDDEN,
    "wished": _HIDDEN,
    "emptied": _HIDDEN,
    "request_key": _HIDDEN,
    "time_zone": _HIDDEN,
    "__all__": LaunchField(REVIEW),
}
COPIED = tuple(name for name, field in LAUNCH_FIELDS.items() if field.is_copied)
OF_ONE_OWNER = frozenset(name for name, field in LAUNCH_FIELDS.items() if field.is_owners)
NOT_IN_ADDRESS = frozenset(name for name, field in LAUNCH_FIELDS.items() if not field.in_address)
