"""How long samples of use are kept: times that cannot work are refused at start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from backendai.ops.checks import check_usage


def test_the_times_it_comes_with_are_right() -> None:
    assert check_usage() == []


@pytest.mark.parametrize(
    ("fine", "kept", "found"),
    [
        (timedelta(days=8), timedelta(days=7), ["portal.E051"]),
        (timedelta(days=7), timedelta(days=7), []),
    ],
)
def test_times_that_cannot_work_are_refused(fine: timedelta, kept: timedelta, found: list[str]) -> None:
    with override_settings(USAGE_FINE_FOR=fine, USAGE_KEPT_FOR=kept):
        assert [message.id for message in check_usage()] == found
