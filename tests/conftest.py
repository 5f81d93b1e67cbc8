"""Fixtures for all tests."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from tests import migrated
from tests.cast import Cast, make_cast

# Thousands of tests are collected and stay: to look through them for garbage took a third of the time of collecting.
gc.disable()
# On a busy machine an example, or making one, takes many times its usual time: that fails no test.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_collection_finish() -> None:
    """Look for garbage from now on, in what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Every test begins with what the migrations wrote, those behind one that commits too."""
    with django_db_blocker.unblock():
        rows = migrated.read_rows()
    TransactionTestCase._fixture_teardown = lambda _: migrated.restore(rows)


@pytest.fixture
def cast(db: None) -> Cast:
    """Alice, Bob, Charlie and Dana."""
    return make_cast()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a mark by which ``bin/test`` would not find the file: it looks for those that name it."""
    for mark in ("browser", "docker", "system"):
        marked = {item.path for item in items if item.get_closest_marker(mark)}
        if hidden := [str(path) for path in marked if f"mark.{mark}" not in Path(path).read_text()]:
            raise pytest.UsageError(f"bin/test would not see the tests that are marked {mark!r} in {', '.join(hidden)}")
