"""Checks of QEMU for this machine's agent."""

from __future__ import annotations

import os
from collections.abc import Mapping

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.qemu.boot import newest_kernel
from backendai.agent.backends.qemu.networks.addresses import devices_into
from backendai.agent.backends.qemu.tools import KERNEL, QemuTools
from backendai.agent.settings.config import read_settings
from backendai.agent.settings.qemu import OFF
from backendai.base.core.errors import UserError
from backendai.base.process.packages import install_command
from backendai.ops.doctor.check import Check, ok, problem, warning

# Program, package, and what lacks without it; one that is not here is needed for every start.
_OPTIONAL = (("skopeo", "images come from the Docker Engine of this machine only"),)
_BUILDING = ("gcc", "lz4")


def qemu(environ: Mapping[str, str] = os.environ) -> list[Check]:
    """Return the findings about QEMU; empty if no agent of this machine uses it."""
    if environ.get("BACKENDAI_AGENT_BACKEND") != "qemu":
        return []
    try:
        settings = read_settings(environ, {"name": "local"}).machines
    except UserError as error:
        return [problem("qemu", error.message, "see BACKENDAI_QEMU_ROOT in .env.example")]
    tools = QemuTools(settings.root)
    missing = [*tools.missing(), *(name for name in _BUILDING if tools.find(name) is None)]
    found = (
        [problem("qemu", f"{', '.join(missing)} is missing", install_command(*missing, lean=True))] if missing else []
    )
    try:
        found.append(ok("qemu kernel", newest_kernel(settings.root).name))
    except BackendError as error:
        found.append(problem("qemu kernel", error.message, install_command(KERNEL, lean=True)))
    for name, lacks in _OPTIONAL:
        if tools.find(name) is None:
            found.append(warning("qemu", f"{name} is missing: {lacks}", install_command(name, lean=True)))
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        text = "/dev/kvm cannot be opened: virtual machines are emulated, 10 to 30 times slower"
        found.append(warning("qemu", text, "enable virtualization, and load kvm_intel or kvm_amd"))
    if settings.network != OFF and (devices := ", ".join(devices_into(settings.guests))):
        text = f"virtual machines do not reach {settings.guests} behind {devices}: they have these addresses inside"
        found.append(warning("qemu", text, "set BACKENDAI_QEMU_GUESTS to 256 addresses that nobody here uses"))
    return found if missing else [ok("qemu", "QEMU and its tools are there"), *found]
