from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.system.images import ensure_tiny
from tests.system.platform import Platform


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the platform's logs to every failure."""
    report = yield
    if report.failed:
        report.sections += [(f"platform at {platform.data}", platform.last_words()) for platform in Platform.running]
    return report


@pytest.fixture(scope="session")
def tiny_image() -> None:
    """The 2 MB image is on the engine."""
    ensure_tiny()
