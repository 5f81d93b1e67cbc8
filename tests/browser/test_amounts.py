"""The amounts of the launch form in a browser: number, unit, slider and notes say the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import RESOURCES, run_on
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]


@pytest.fixture
def gpus(platform: Platform) -> Iterator[str]:
    """The name of a second group, which alone has accelerators."""
    yield run_on(platform, "make_gpus")
    run_on(platform, "drop_gpus")


def test_number_unit_and_slider_follow_each_other_and_notes_say_what_is_wrong(visit: Visit) -> None:
    visitor = visit(ALICE)
    visitor.go("/sessions/new/")
    visitor.step(RESOURCES)
    page = visitor.page
    cores, memory = page.get_by_label("CPU cores", exact=True), page.get_by_label("Memory", exact=True)
    slider = page.get_by_label("CPU cores, as a slider")
    cores.fill("2")
    expect(page.locator("#preset-custom")).to_be_checked()
    expect(slider).to_have_js_property("value", "2")
    slider.press("ArrowRight")
    expect(cores).to_have_value("3")
    above = page.locator("[data-amount=cpu] [data-when=above]")
    expect(above).to_be_hidden()
    cores.fill("5")
    expect(above).to_have_text("At most 4: that is the limit of the largest agent of default.")
    expect(cores).to_have_attribute("aria-invalid", "true")
    cores.fill("0.1005")
    expect(page.get_by_text("Must be a multiple of 0.001.")).to_be_visible()
    cores.fill("1")
    memory.fill("512m")
    expect(page.locator("#memory-split")).to_contain_text("448 MiB for programs · 64 MiB shared")
    page.locator("#shm-automatic").uncheck()
    expect(page.get_by_label("Shared memory", exact=True)).to_have_value("64")
    help_on_memory = page.get_by_label("Help: Memory", exact=True)
    help_on_memory.press("Enter")
    expect(page.get_by_text("Main memory. With a GPU")).to_be_visible()
    with page.expect_response("**/sessions/new/amounts/"):
        page.get_by_label("Kernels", exact=True).fill("2")
        page.get_by_label("Kernels", exact=True).press("Tab")
    expect(page.locator("#facts-cpu")).to_have_attribute("data-maximum", "2")
    assert visitor.accessibility_faults() == []
    assert visitor.overflow_on_a_phone() <= 0


def test_a_group_takes_its_presets_and_accelerators_with_it(visit: Visit, gpus: str) -> None:
    visitor = visit(ALICE)
    visitor.go(f"/sessions/new/?resource_group={gpus}")
    visitor.step(RESOURCES)
    page = visitor.page
    page.locator("[id='preset-a-gpu']").check()
    devices = page.locator("[name='slot.cuda.device']")
    expect(devices).to_have_value("1")
    expect(page.locator("#kernels-now")).to_contain_text("2 can start on one agent now")
    page.get_by_label("Resource group", exact=True).select_option("default")
    expect(devices).to_have_value("")
    expect(page.locator("[name=preset]:checked")).not_to_have_value("a-gpu")
    expect(page.locator("#no-accelerator")).to_have_text("Resource group default has none.")
    expect(page.locator("#kernels-now")).not_to_contain_text(" 0 can start")
    page.get_by_label("Resource group", exact=True).select_option(gpus)
    expect(page.locator("[id='preset-a-gpu']")).to_be_visible()
