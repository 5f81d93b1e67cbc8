"""Tests hardware virtualization: a trial boot with a deadline, once per agent.

An accessible ``/dev/kvm`` is not enough: inside some virtual machines it opens, but no guest ever starts.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.qemu.boot import BootFiles
from backendai.agent.backends.qemu.command import KVM, TCG, GuestShape, trial_command
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.base.process.slowness import allowed

TRIAL_SECONDS = 8.0
_DEVICE = "/dev/kvm"
_MEMORY = 256 * 2**20


@dataclass(frozen=True, slots=True)
class AccelerationTest:
    """The result of the test: the acceleration, and why KVM is not used."""

    acceleration: str
    why_not: str = ""
    seconds: float = 0.0


class Acceleration:
    """The acceleration of one agent's guests. ``asked``: auto, kvm or tcg."""

    def __init__(self, asked: str, tools: QemuTools, files: Callable[[], BootFiles]) -> None:
        self._asked, self._tools, self._files = asked, tools, files
        self._trying = threading.Lock()
        self._known: AccelerationTest | None = None

    @property
    def known(self) -> AccelerationTest | None:
        """The result, if the test has run."""
        return self._known

    def find(self) -> AccelerationTest:
        """Return the test's result; the first call takes 8 s or, on a slow machine, longer. Raises BackendError."""
        with self._trying:
            if self._known is None:
                self._known = self._try()
            return self._known

    def _try(self) -> AccelerationTest:
        if self._asked == TCG:
            return AccelerationTest(TCG, "the setting BACKENDAI_QEMU_ACCELERATION is tcg")
        if not os.access(_DEVICE, os.R_OK | os.W_OK):
            why_not = f"{_DEVICE} is missing" if not os.path.exists(_DEVICE) else f"{_DEVICE} is closed to this user"  # noqa: PTH110
        else:
            begun = time.monotonic()
            if not (why_not := self._boot()):
                return AccelerationTest(KVM, seconds=time.monotonic() - begun)
        if self._asked == KVM:
            text = "No guest starts with the processor's help: {reason}."
            raise BackendError(text, reason=why_not, code="qemu-no-kvm")
        return AccelerationTest(TCG, why_not)

    def _boot(self) -> str:
        """Boot a guest that powers off at once; returns the fault, empty if there is none."""
        command = trial_command(GuestShape(_MEMORY, 1, KVM), self._tools, self._files())
        longest = allowed(TRIAL_SECONDS)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=longest,
                env=self._tools.environ(), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"a guest did not start within {longest:.0f} s"
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        return f"QEMU ended: {said[-1][:200] if said else done.returncode}" if done.returncode else ""
