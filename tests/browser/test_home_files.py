"""The files of a running session in the explorer: uploaded, looked at, edited, renamed, downloaded and deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient
from playwright.sync_api import Route, expect

from tests.agent.images import ensure_python_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.system.client import Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
THIRD = "third line\n"
_ADD_IMAGE = """
from backendai.domain.catalog.models import Image
Image.objects.update_or_create(name="plain-python", defaults={{"reference": "{}", "minimum": {{"cpu": "0.1"}}}})
"""


@pytest.fixture(scope="module")
def session_id(platform: Platform, alice: Client) -> Iterator[str]:
    """A session of Alice's whose image has the Python that the guest agent needs."""
    engine = APIClient()
    reference = "local/backendai-with-files:latest"  # one environment of the catalogue has one reference
    engine.tag(ensure_python_image(engine), *reference.split(":"))
    assert platform.manage("shell", "--no-imports", "-c", _ADD_IMAGE.format(reference)).returncode == 0
    session = alice.wait_until_running(alice.launch("with-files", image="plain-python")["id"])
    yield str(session["id"])
    alice.end(session["id"])
    engine.remove_image(reference)
    engine.close()


def lose_answer(route: Route) -> None:
    """Let the upload arrive, and answer as a proxy does that lost the connection meanwhile."""
    route.fetch(post_data=THIRD)  # Playwright does not see the bytes of a file
    route.fulfill(status=503)


def test_files_of_a_session_are_uploaded_edited_and_deleted(
    visit: Visit, session_id: str, alice: Client, tmp_path: Path
) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    (tmp_path / "notes.txt").write_text("first line\n")
    visitor.go(f"/sessions/{session_id}/")
    page.get_by_role("link", name="Files", exact=True).first.click()
    expect(page.get_by_text("It is deleted when the session ends.")).to_be_visible()

    page.get_by_role("button", name="New directory").click()
    page.get_by_role("dialog", name="New directory").get_by_label("Name").fill("runs")
    page.get_by_role("button", name="Create directory").click()
    page.get_by_role("link", name="runs", exact=True).click()
    page.locator("#pick-files").set_input_files([str(tmp_path / "notes.txt")])
    expect(page.locator(".upload-state")).to_have_text("Uploaded")
    here = page.url

    page.get_by_role("link", name="notes.txt", exact=True).click()
    text = page.get_by_label("Text of the file")
    expect(text).to_have_value("first line\n")
    text.fill("second line\n")
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()

    visitor.go(here)
    page.get_by_role("button", name="Rename notes.txt").click()
    page.get_by_label("New name").fill("log.txt")
    page.get_by_role("dialog", name="Rename").get_by_role("button", name="Rename").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download log.txt").click()
    assert Path(download.value.path()).read_text() == "second line\n"
    assert visitor.faults_in_every_light() == []

    (tmp_path / "log.txt").write_text(THIRD)
    page.route(re.compile(r"/log%20\(2\)\.txt$"), lose_answer)
    for answer, told, content in (
        ("Keep files", "1 kept as they were", "second line\n"),
        ("Keep both", "Uploaded", "second line\n"),
        ("Replace files", "Uploaded", THIRD),
    ):
        page.locator("#pick-files").set_input_files([str(tmp_path / "log.txt")])
        question = page.get_by_role("dialog", name="Replace files?")
        expect(question).to_contain_text("log.txt")
        question.get_by_role("button", name=answer).click()
        expect(page.locator(".upload-state").last).to_have_text(told)
        with page.expect_download() as download:
            page.get_by_role("link", name="Download log.txt").click()
        assert Path(download.value.path()).read_text() == content
    expect(page.get_by_role("link", name="log (2).txt", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="log (3).txt", exact=True)).to_have_count(0)
    known = ("409 for", "503 for PUT")  # it was there, and the lost answer
    visitor.complaints[:] = [each for each in visitor.complaints if not each.startswith(known)]

    page.get_by_role("link", name="/home/work").click()
    page.get_by_label("Select runs").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_text("1 entry is deleted.")).to_be_visible()
    expect(page.get_by_role("link", name="runs", exact=True)).to_have_count(0)
