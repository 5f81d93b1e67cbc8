"""How long samples of use are kept: times that cannot work are refused at start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django.fixtures import SettingsWrapper

from backendai.ops.checks import check_usage


def test_the_times_it_comes_with_are_right() -> None:
    assert check_usage() == []


@pytest.mark.parametrize(
    ("fine", "kept", "found"),
    [
        (timedelta(hours=1), timedelta(days=7), ["portal.E051"]),
        (timedelta(days=8), timedelta(days=7), ["portal.E051"]),
        (timedelta(days=1), timedelta(days=400), ["portal.E052"]),
        (timedelta(days=7), timedelta(days=7), []),
    ],
)
def test_times_that_cannot_work_are_refused(
    settings: SettingsWrapper, fine: timedelta, kept: timedelta, found: list[str]
) -> None:
    settings.USAGE_FINE_FOR, settings.USAGE_KEPT_FOR = fine, kept
    assert [message.id for message in check_usage()] == found
