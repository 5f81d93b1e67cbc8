from __future__ import annotations

import os
import subprocess
from collections.abc import Generator

import pytest
from docker import APIClient
from docker.errors import ImageNotFound

from tests.system.platform import ROOT, TINY, Platform


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the platform's logs to every failure."""
    report = yield
    if report.failed:
        report.sections += [(f"platform at {platform.data}", platform.logs()) for platform in Platform.running]
    return report


@pytest.fixture(scope="session")
def tiny_image() -> str:
    """The reference of the 2 MB image, made if it is not there."""
    client = APIClient()
    try:
        client.inspect_image(TINY)
    except ImageNotFound:
        subprocess.run([ROOT / "images/tiny/build", TINY], check=True, capture_output=True, env=dict(os.environ))
    finally:
        client.close()
    return TINY
