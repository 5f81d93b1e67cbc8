"""Fixtures for all tests, and how their processes share them."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable, Iterator
from datetime import date

import pytest
import uvloop
from django.db import connection
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker
from xdist.remote import Producer

from tests import migrated, prepared
from tests.cast import Cast, make_cast
from tests.groups import GroupScheduling, is_chosen, urgency
from tests.patience import pytest_itemcollected  # noqa: F401  (a hook)
from tests.report import pytest_sessionstart, pytest_terminal_summary  # noqa: F401  (hooks)

# Thousands of tests are collected and stay: to look through them for garbage took a third of the time of collecting.
gc.disable()
# On a busy machine an example, or making one, takes many times its usual time: that fails no test.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
_ON_ASYNCIO = re.compile("test_(guest|qemu|kubernetes|relaying)")


def pytest_collection_finish() -> None:
    """Look for garbage from now on, in what the tests make; seldom, as that took a sixteenth of their time."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--third", action="store_true", help="of the slow tests only the third whose turn it is today")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the slow tests of today, and let those begin that take longest."""
    if config.getoption("--third"):
        today = date.today().toordinal()
        left_out = [item for item in items if not is_chosen(item, today)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_chosen(item, today)]
    items.sort(key=urgency)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the event loop that runs their subject in production: its connections are other classes than
    asyncio's. Guests of kernels, and carriers of machines, run on the standard library's.
    """
    if _ON_ASYNCIO.match(item.path.name):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Keep the tests of a group in one process."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Every test begins with what the migrations wrote, those behind one that commits too."""
    with django_db_blocker.unblock(), prepared.database(connection):
        rows = migrated.read_rows()
        TransactionTestCase._fixture_teardown = lambda _: migrated.restore(rows)
        yield


@pytest.fixture
def cast(db: None) -> Cast:
    """Alice, Bob, Charlie and Dana."""
    return make_cast()
