"""What a session really uses: measured on its node, seen in its panel while it runs and after its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.patience import patient
from tests.system.client import Body, Client

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
MEASURED_MS = patient(90_000)  # two rounds of the agent, and the page's next question


@pytest.fixture
def burning(alice: Client) -> Iterator[Body]:
    """A cluster of two kernels, each of which has a core to burn."""
    wish = {"type": "batch", "startup_command": "while :; do :; done", "cluster_size": 2}
    session = alice.launch("burns", resources={"cpu": 1, "mem": "64m"}, **wish)
    yield alice.wait_until_running(session["id"])
    alice.end(session["id"])


def test_what_is_used_appears_by_itself_and_stays_after_the_end(visit: Visit, alice: Client, burning: Body) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go(f"/sessions/{burning['id']}/")
    usage = page.locator("#resource-usage")
    cpu = usage.locator("figure").first
    expect(cpu).to_contain_text(re.compile(r"[\d.]+ of 2"), timeout=MEASURED_MS)
    expect(cpu.locator(".usage-bar")).not_to_have_count(0)
    expect(usage).to_contain_text("measured")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0
    with visitor.dark():
        assert visitor.accessibility_faults() == []

    # One kernel alone; the panel that is drawn anew beside it leaves the choice as it is.
    usage.get_by_label("Kernel").select_option(label="main1")
    expect(cpu).to_contain_text(re.compile(r"[\d.]+ of 1"))
    page.evaluate("htmx.trigger('#session-head', 'look-again')")
    usage.get_by_label("Last").select_option("6h")
    expect(cpu).to_contain_text(re.compile(r"[\d.]+ of 1"))
    expect(usage.get_by_label("Kernel")).to_have_value(re.compile("."))

    alice.end(burning["id"])
    visitor.reload()
    expect(usage).to_contain_text("The session has ended")
    expect(cpu.locator(".usage-bar")).not_to_have_count(0)
    assert visitor.accessibility_faults() == []


def test_it_can_be_looked_at_without_scripts(visit: Visit, burning: Body) -> None:
    visitor = visit(ALICE, scripts=False)
    visitor.go(f"/sessions/{burning['id']}/")
    usage = visitor.page.locator("#resource-usage")
    usage.get_by_label("Last").select_option("6h")
    usage.get_by_role("button", name="Apply").click()
    expect(visitor.page.get_by_label("Last")).to_have_value("6h")
    expect(visitor.page.locator("figure")).to_have_count(4)
