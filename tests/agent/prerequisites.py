"""What some tests need of the machine. Where a package or root would help, a test without it fails and says so; a test
is skipped only for what the machine alone can bring, its Linux kernel for example."""

from __future__ import annotations

import os
import shutil

import pytest


def need_root(why: str) -> None:
    """Fail unless the tests run as root."""
    if os.geteuid() != 0:
        pytest.fail(f"{why}: run the tests as root", pytrace=False)


def need_program(name: str, package: str) -> None:
    """Fail unless the program is installed."""
    if shutil.which(name) is None:
        pytest.fail(f"{name} is missing: apt-get install {package}", pytrace=False)
