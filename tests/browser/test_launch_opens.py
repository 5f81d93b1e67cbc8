"""From the list to a notebook in three clicks, and a batch session that runs a file of its owner's."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docker import APIClient
from playwright.sync_api import Page, expect

from tests.agent.images import ensure_service_image
from tests.browser.conftest import Visit
from tests.browser.people import ALICE
from tests.browser.visitor import REVIEW
from tests.patience import patient
from tests.system.client import Body, Client
from tests.system.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system]
_IMAGE = ("local/backendai-a-lab", "latest")
_LABEL = "jupyterlab:http:[8000]"
# Its title is the first of all, so that a new form begins with it.
_ADD_IMAGE = """
import time
from backendai.domain.catalog.models import Image, ImageOnAgent
labels = {{"ai.backend.service-ports": "{1}"}}
told = {{"reference": "{0}", "minimum": {{"cpu": "0.1"}}, "title": "1 Lab", "labels": labels}}
Image.objects.update_or_create(name="a-lab", defaults=told)
end = time.monotonic() + {2}
while not ImageOnAgent.objects.filter(reference="{0}").exists():
    assert time.monotonic() < end, "the agent has not reported the image"
    time.sleep(0.2)
"""
_STARTED_MS = patient(45_000)


@pytest.fixture(scope="module")
def lab(platform: Platform, alice: Client) -> Iterator[str]:
    """An environment with the app ``jupyterlab``: the test's notes under that name."""
    engine = APIClient()
    made = engine.create_container(ensure_service_image(engine), command=["true"])
    service = {"command": ["nc", "-ll", "-p", "{ports[0]}", "-e", "/srv/handle"], "url_template": "/notes"}
    engine.put_archive(made, "/etc/backend.ai/service-defs", _archive("jupyterlab.json", json.dumps(service).encode()))
    engine.commit(made, *_IMAGE, changes=f"LABEL ai.backend.service-ports={_LABEL}")
    engine.remove_container(made)
    image = ":".join(_IMAGE)
    done = platform.manage("shell", "--no-imports", "-c", _ADD_IMAGE.format(image, _LABEL, patient(90)))
    assert done.returncode == 0, done.stderr
    yield image
    gone = platform.manage(
        "shell",
        "--no-imports",
        "-c",
        "from backendai.domain.catalog.models import Image\n"
        "Image.objects.filter(name='a-lab').update(is_enabled=False)",
    )
    assert gone.returncode == 0, gone.stderr
    engine.remove_image(image, force=True)
    engine.close()


@pytest.fixture
def launched(alice: Client) -> Iterator[None]:
    """Ends what a test has launched."""
    before = {session["id"] for session in alice.sessions()}
    yield
    alice.end(*[session["id"] for session in alice.sessions() if session["id"] not in before])


def _archive(name: str, content: bytes) -> bytes:
    buffer, entry = io.BytesIO(), tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def expect_notes(page: Page) -> None:
    expect(page.get_by_role("heading", name="Notes")).to_be_visible(timeout=_STARTED_MS)
    assert str(urlsplit(page.url).hostname).startswith("jupyterlab-")
    assert page.evaluate("window.opener") is None


@pytest.mark.usefixtures("launched", "lab")
def test_three_clicks_lead_from_the_list_into_the_app(visit: Visit) -> None:
    visitor = visit(ALICE)
    page = visitor.page
    page.get_by_role("link", name="New session").first.click()
    tick = page.get_by_role("checkbox", name="Open JupyterLab when ready")
    expect(tick).to_be_checked()
    assert visitor.faults_in_every_light() == []
    expect(page.locator("#launch-outlook")).to_contain_text("Starts now")
    page.get_by_role("button", name="Launch", exact=True).click()
    with page.context.expect_page() as opened:
        page.get_by_role("dialog").get_by_role("button", name="Launch session", exact=True).click()
    expect_notes(opened.value)
    expect(page).to_have_url(re.compile(r"/\?launched="))
    opened.value.close()


@pytest.mark.usefixtures("launched", "lab")
def test_the_tab_says_why_the_session_waits_and_closes_when_the_launch_is_refused(visit: Visit, alice: Client) -> None:
    full: Body = alice.wait_until_running(alice.launch("takes-all", resources={"cpu": 4, "mem": "64m"})["id"])
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill("comes-later")
    expect(page.locator("#launch-outlook")).to_contain_text("Waits")
    page.get_by_role("button", name="Launch", exact=True).click()
    with page.context.expect_page() as opened:
        page.get_by_role("dialog").get_by_role("button", name="Launch session", exact=True).click()
    tab = opened.value
    expect(tab.locator("#opening")).to_contain_text("No agent has room")
    expect(tab.get_by_role("link", name="Go to comes-later")).to_be_visible()

    other = visitor.page.context.new_page()
    other.goto(urlsplit(page.url)._replace(path="/sessions/new/", query="").geturl())
    expect(other.locator("#launch-outlook")).to_contain_text("Waits")
    # The form does not hear any more that the name is taken: then it would not even open a tab.
    other.route("**/sessions/new/preview/", lambda route: route.abort())
    other.get_by_label("Name optional").fill("taken-meanwhile")
    other.get_by_role("button", name="Launch", exact=True).click()
    alice.launch("taken-meanwhile", resources={"cpu": 1, "mem": "64m"})
    with other.context.expect_page() as refused:
        other.get_by_role("dialog").get_by_role("button", name="Launch session", exact=True).click()
    expect(other.locator("#launch-obstacle")).to_be_visible()
    if not refused.value.is_closed():
        refused.value.wait_for_event("close")
    other.close()

    alice.end(full["id"])
    expect_notes(tab)
    tab.close()


@pytest.mark.usefixtures("launched", "lab")
def test_without_scripts_the_launch_leads_to_a_page_with_the_way_in(visit: Visit) -> None:
    visitor = visit(ALICE, scripts=False)
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Open JupyterLab when ready").check()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.get_by_role("link", name="Open JupyterLab").click(timeout=_STARTED_MS)
    page.get_by_role("button", name="Open JupyterLab").click()
    expect(page.get_by_role("heading", name="Notes")).to_be_visible()


@pytest.mark.usefixtures("launched")
def test_results_of_a_batch_session_stay_in_a_folder_that_its_launch_creates(visit: Visit, alice: Client) -> None:
    taken = alice.post("folders/", {"name": "keeps-it"})["id"]
    before = len(alice.sessions())
    visitor = visit(ALICE, on_phone=True)
    page = visitor.page
    visitor.go("/sessions/new/?image=shell")
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    page.get_by_label("Name optional").fill("keeps-it")
    page.get_by_label("Startup command").fill("echo 42 > result.txt")
    visitor.step(REVIEW)
    page.get_by_role("button", name="Launch", exact=True).click()
    question = page.get_by_role("dialog", name="No folder is mounted", exact=True)
    question.get_by_role("button", name="Create a folder and start in it").press("Enter")
    dialog = page.get_by_role("dialog", name="New folder")
    name = dialog.get_by_label("Name", exact=True)
    expect(name).to_have_value("keeps-it")
    expect(name).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert not visitor.accessibility_faults()
    name.press("Enter")
    expect(dialog.locator(".is-invalid")).to_have_count(1)  # she has one of this name, so nothing is launched
    expect(name).to_be_focused()
    assert len(alice.sessions()) == before
    name.fill("keeps-it-too")
    name.press("Enter")
    page.wait_for_url("**/?launched=*")
    session_id = page.url.partition("launched=")[2]
    done = alice.wait_for(session_id, "TERMINATED")
    (mount,) = done["mounts"]
    assert (done["start_in"], mount["rights"]) == (mount["target"], "edit")
    visitor.go(f"/folders/{mount['folder']}/")
    expect(page.get_by_role("link", name="result.txt", exact=True)).to_be_visible()
    for folder in (taken, mount["folder"]):
        assert alice._send("DELETE", f"folders/{folder}/").status_code < 300


@pytest.mark.usefixtures("launched")
def test_a_batch_session_runs_a_file_that_was_chosen(visit: Visit, alice: Client, tmp_path: Path) -> None:
    script, picture = tmp_path / "my run.sh", tmp_path / "picture.png"
    script.write_text('echo "from the file: $(pwd)"\n')
    picture.write_bytes(b"\x89PNG\xff")
    visitor = visit(ALICE)
    page = visitor.page
    visitor.go("/sessions/new/?image=shell")
    page.get_by_role("radio", name=re.compile("^Batch")).check()
    page.get_by_label("Add files").set_input_files([script, picture])
    expect(page.locator("#files-told")).to_have_text("picture.png is not a text file in UTF-8.")
    expect(page.get_by_label("Name of file 1")).to_have_value("my_run.sh")
    expect(page.locator("[data-size]")).to_have_text(f"{script.stat().st_size} B")
    command = page.get_by_label("Startup command")
    expect(command).to_have_value("bash ~/my_run.sh")
    command.fill("sh my_run.sh &&")
    command.press("Tab")
    page.keyboard.type("echo end")
    expect(command).to_have_value("sh my_run.sh &&    echo end")
    command.press("Escape")
    command.press("Tab")
    expect(page.get_by_label("Name of file 1")).to_be_focused()
    assert visitor.faults_in_every_light() == []
    visitor.step(REVIEW)
    expect(page.locator("#launch-review").get_by_role("region", name="Session type")).to_contain_text("my_run.sh")
    assert "from+the+file" not in page.url and "from%20the" not in page.url
    session_id = visitor.launch()
    alice.wait_for(session_id, "TERMINATED")
    visitor.go(f"/sessions/{session_id}/log/")
    expect(page.locator("main")).to_contain_text("from the file: /home/work")

    visitor.go(f"/sessions/new/?like={session_id}")
    expect(page.get_by_label("Name of file 1")).to_have_value("my_run.sh")
    visitor.step(REVIEW)
    visitor.reload()
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_enabled()
