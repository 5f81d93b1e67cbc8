"""Runs all checks of the doctor."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from backendai.domain.cluster.services import last_pass_at
from backendai.ops.doctor import accelerators, apps, engine, kubernetes, machine, portal, qemu, sign_in, ssh, storage
from backendai.ops.doctor.check import Check, problem
from backendai.portal.loops.loops import PASS_LEASE


def examine() -> list[Check]:
    """Return all findings, those of the machine first."""
    data = settings.DATA_DIR
    checks = [
        machine.python_version(),
        machine.data_folder(data),
        machine.free_disk(data),
        machine.port("127.0.0.1", settings.PORT),
        machine.clock(),
        machine.privileges(),
        machine.inotify(),
        *machine.programs(),
        machine.loop_devices(),
        machine.bubblewrap(),
        *engine.docker(),
        *kubernetes.kubernetes(),
        *qemu.qemu(),
        *accelerators.accelerators(),
        *apps.apps(),
        *ssh.ssh(),
        *storage.storage(),
        portal.broker(),
        portal.debug_mode(),
    ]
    return [*checks, *_database_checks()]


def _database_checks() -> list[Check]:
    checks = portal.database()
    if any(check.level == "problem" for check in checks):
        return checks
    try:
        found = [portal.images(), portal.scheduler(last_pass_at(PASS_LEASE), timezone.now()), portal.broker_accounts()]
        found.append(portal.other_portals())
        return [*checks, *found, *sign_in.single_sign_on(), sign_in.visitors()]
    except DatabaseError as error:
        return [*checks, problem("database", f"cannot be read: {error}", "manage.py prepare")]
