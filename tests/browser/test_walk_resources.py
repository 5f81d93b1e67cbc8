"""The launcher's second step: environments, amounts, accelerators, nodes, threads, and what waits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ADMIN, ALICE
from tests.browser.visitor import RESOURCES, REVIEW, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.system]
HELPED = ["CPU cores", "Memory", "Shared memory", "AI accelerator", "Sessions", "Kernels", "Resource group", "Agent"]


@pytest.fixture(autouse=True)
def _launched(campus: Campus) -> Iterator[None]:
    """Ends what a test has launched."""
    yield
    campus.alice.end(*[one["id"] for one in campus.alice.sessions() if one["status"] in ("PENDING", "RUNNING")])


def test_versions_follow_the_environment_and_accelerators_follow_the_version(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    expect(page.get_by_text("supports none of the accelerators in default")).to_be_visible()
    expect(page.get_by_label("GPU", exact=True)).to_be_hidden()
    page.get_by_role("radio", name=re.compile("^PyTorch")).first.check()
    version = page.get_by_role("combobox", name="Version")
    expect(version.get_by_role("option")).to_have_count(2)
    gpus = page.get_by_label("GPU", exact=True)
    gpus.fill("0.5")
    visitor.step(REVIEW)
    expect(_allocation(page)).to_contain_text("0.5 GPUs requested, but it is allocated in steps of 1.")
    visitor.step(RESOURCES)
    gpus.fill("3")
    expect(page.locator("[data-amount='cuda.device'] [data-when=above]")).to_contain_text("At most 2")
    gpus.fill("2")
    visitor.step(REVIEW)
    expect(_allocation(page)).to_contain_text(re.compile(r"2.GPU"))


@pytest.mark.core
def test_a_preset_fills_everything_in_and_what_is_typed_is_ones_own(walk: Visit) -> None:
    visitor = _form(walk)
    page = visitor.page
    cores, memory = page.get_by_label("CPU cores", exact=True), page.get_by_label("Memory", exact=True)
    page.get_by_role("radio", name=re.compile("^small")).check()
    expect(cores).to_have_value("1")
    too_large = page.get_by_role("radio", name=re.compile("^too-large .*Cannot start: needs .* at most "))
    expect(too_large).to_have_accessible_description(re.compile("No agent is large enough"))
    page.get_by_label("Why too-large does not fit").click()
    expect(page.get_by_text(re.compile(r"^\s*No agent is large enough"))).to_be_visible()
    memory.fill("1g")
    expect(page.get_by_role("radio", name=re.compile("^Custom"))).to_be_checked()
    for topic in HELPED:
        page.get_by_label(f"Help: {topic}", exact=True).press("Enter")
    assert visitor.faults_in_every_light() == []


def test_what_does_not_fit_now_waits_and_says_so_before(walk: Visit, campus: Campus) -> None:
    visitor = _form(walk)
    page = visitor.page
    page.get_by_label("CPU cores", exact=True).fill("8")
    page.get_by_label("Memory", exact=True).fill("1g")
    page.get_by_label("Sessions", exact=True).fill("3")
    visitor.step("Session type")
    page.get_by_role("textbox", name="Name optional", exact=True).fill("three")
    visitor.step(REVIEW)
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()
    visitor.launch()
    mine = {one["name"]: one["id"] for one in campus.alice.sessions() if one["name"].startswith("three-")}
    for name in ("three-1", "three-2"):
        campus.alice.wait_until_running(mine[name])
    visitor.go(f"/sessions/{mine['three-3']}/")
    expect(visitor.status).to_have_text("Pending")
    expect(page.locator("#session-head .state-notice")).to_contain_text("Waiting for free resources")
    visitor.go("/sessions/new/?step=2")
    page.get_by_label("CPU cores", exact=True).fill("1")
    expect(page.locator("[data-amount=cpu] [data-when=queue]")).to_be_visible()


def test_a_node_is_chosen_for_a_single_kernel_by_what_it_has_free(walk: Visit, campus: Campus) -> None:
    busy = campus.alice.launch("holds-five", resources={"cpu": 5, "mem": "1g"})
    busy = campus.alice.wait_until_running(busy["id"])
    agent = busy["kernels"][0]["agent"]
    visitor = _form(walk)
    page = visitor.page
    node = page.get_by_label("Agent", exact=True)
    expect(node).to_have_value("")
    expect(node.get_by_role("option", name=re.compile(f"^{agent}: 3.CPU"))).to_have_count(1)
    node.select_option(agent)
    session_id = visitor.launch()
    assert campus.alice.wait_until_running(session_id)["kernels"][0]["agent"] == agent


@pytest.mark.ci
@pytest.mark.core
def test_a_cluster_has_its_mode_and_threads_can_be_set_by_hand(walk: Visit, campus: Campus) -> None:
    visitor = _form(walk)
    page = visitor.page
    sessions = page.get_by_label("Sessions", exact=True)
    sessions.fill("3")
    page.get_by_label("Kernels", exact=True).fill("2")
    expect(sessions).to_have_accessible_description(re.compile("A cluster is one session: set Kernels to 1"))
    page.get_by_label("Cluster placement", exact=True).select_option(label="on any agents")
    page.get_by_role("heading", name="High-performance computing").click()
    expect(page.get_by_role("radio", name=re.compile("^Automatic"))).to_be_checked()
    page.get_by_role("radio", name=re.compile("^Set by hand")).check()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        page.get_by_label(name).fill("0")
    visitor.step(REVIEW)
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    visitor.step(RESOURCES)
    page.get_by_label("OMP_NUM_THREADS").fill("1")
    page.get_by_label("OPENBLAS_NUM_THREADS").fill("2")
    visitor.step(REVIEW)
    expect(_allocation(page)).to_contain_text(re.compile(r"Sessions\s*1\s*Cluster"))
    session_id = visitor.launch()
    session = campus.alice.wait_until_running(session_id)
    assert sorted(kernel["hostname"] for kernel in session["kernels"]) == ["main1", "sub1"]
    page.get_by_role("link", name="Show values").click()
    box = page.get_by_role("dialog", name="Environment variables")
    expect(box.locator("dt")).to_have_text(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
    expect(box.locator("dd bdi")).to_have_text(["1", "2"])


def test_the_site_takes_away_the_typed_image_and_the_node(walk: Visit) -> None:
    boss, visitor = walk(ADMIN), _form(walk)
    page = visitor.page
    expect(page.get_by_role("textbox", name="Image name")).to_be_visible()
    page.get_by_role("textbox", name="Image name").fill("no/such:image")
    visitor.step(REVIEW)
    expect(page.locator("#launch-review").get_by_role("region", name="Image", exact=True)).to_contain_text(
        "No image of this name is open to"
    )
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_disabled()
    try:
        _offer(boss, False)
        visitor.go("/sessions/new/?step=2")
        expect(page.get_by_label("CPU cores", exact=True)).to_be_visible()
        expect(page.get_by_role("textbox", name="Image name")).to_have_count(0)
        expect(page.get_by_label("Agent", exact=True)).to_have_count(0)
    finally:
        _offer(boss, True)


def _offer(boss: Visitor, wanted: bool) -> None:
    boss.go("/manage/settings/")
    for name in ("agent_select", "manual_image"):
        boss.page.locator(f"[name={name}]").set_checked(wanted)
    boss.page.get_by_role("button", name="Save").click()
    expect(boss.page.locator(".alert-success")).to_be_visible()


def _form(walk: Visit) -> Visitor:
    visitor = walk(ALICE)
    visitor.go("/sessions/new/?step=2")
    expect(visitor.page.locator("#launch-outlook")).not_to_be_empty()  # its scripts have started
    return visitor


def _allocation(page: Page) -> Locator:
    return page.locator("#launch-review").get_by_role("region", name="Resource allocation")
