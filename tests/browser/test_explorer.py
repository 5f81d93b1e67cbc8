"""The explorer with a whole directory: dropped, searched, downloaded, moved, copied, replaced; uploads that fail."""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from backendai.base.paths.storage_layout import MARKER
from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.browser.visitor import wait_until
from tests.patience import patient
from tests.system.client import fresh

pytestmark = [pytest.mark.browser, pytest.mark.system]
_FILES = 1_200
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="
_LONG, _ODD = "n" * 150 + ".txt", "käse 日本 – 'quoted'.txt"


def tree_in(folder: Path) -> set[str]:
    """Make 1,200 small files in nested directories, with names of many kinds; returns their paths."""
    paths = {f"tree/part-{number % 12}/{number:04}.txt" for number in range(_FILES - 3)}
    paths |= {f"tree/{_LONG}", f"tree/deep/{'d' * 120}/{_ODD}", f"tree/deep/{_ODD}"}
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return paths


def drop(page: Page, path: Path) -> None:
    """Drop a directory of this machine on the page, as a file manager does, once its scripts listen."""
    page.wait_for_load_state()
    devtools = page.context.new_cdp_session(page)
    box: Any = page.locator("#explorer").bounding_box()
    where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 20}
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, **where, "data": data})


def new_folder(page: Page, name: str) -> None:
    page.get_by_label("Name").fill(fresh(name))
    page.get_by_role("button", name="Create folder").click()
    expect(page.get_by_role("button", name="Upload files")).to_be_visible(timeout=patient(60_000))  # once it is made


def test_a_directory_is_dropped_found_and_downloaded(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    paths = tree_in(tmp_path)
    visitor.go("/folders/new/")
    new_folder(page, "tree-of-files")
    drop(page, tmp_path / "tree")
    expect(page.locator("[data-sum]")).to_have_text("3 / 3", timeout=patient(90_000))  # batches of 500 files
    expect(page.locator(".upload-list li[data-state=bad]")).to_have_count(0)

    with page.expect_download() as download:
        page.get_by_role("link", name="Download all as ZIP").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
        assert files == paths
        assert archive.read(f"tree/deep/{_ODD}").decode() == f"tree/deep/{_ODD}"

    page.keyboard.press("/")
    page.keyboard.type("KÄSE")
    expect(page.locator(".found-list li")).to_have_count(2)
    page.locator(".found-list a").first.click()
    expect(page.get_by_label("Text of the file")).to_have_value(re.compile("käse"))
    assert visitor.faults_in_every_light() == []


def test_files_that_are_chosen_before_the_script_is_here_are_uploaded(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "small.txt").write_text("x")
    visitor.go("/folders/new/")
    new_folder(page, "early")
    held: list[Route] = []
    page.route("**/folder-upload*.js", lambda route: held.append(route))
    page.goto(page.url, wait_until="commit")
    page.locator("#pick-files").set_input_files(str(tmp_path / "small.txt"))
    wait_until(page, lambda: held, "the script is asked for")
    held[0].continue_()
    expect(page.locator(".upload-state")).to_have_text("Uploaded")


@pytest.mark.ci
@pytest.mark.core
def test_files_are_created_moved_copied_and_replaced_only_when_asked(walk: Visit) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go("/folders/new/")
    new_folder(page, "desk")
    explorer = page.url
    page.get_by_role("button", name="New directory").click()
    page.get_by_role("dialog", name="New directory").get_by_label("Name").fill("archive")
    page.get_by_role("button", name="Create directory").click()
    for name in ("notes.md", "other.md"):
        visitor.go(explorer)
        page.get_by_role("button", name="New file").click()
        page.get_by_role("dialog", name="New file").get_by_label("Name").fill(name)
        page.get_by_role("button", name="Create file").click()
        page.get_by_label("Text of the file").fill(f"text of {name}")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()

    visitor.go(explorer)
    page.get_by_role("button", name="New file").click()
    page.get_by_role("dialog", name="New file").get_by_label("Name").fill("notes.md")
    page.get_by_role("button", name="Create file").click()
    expect(page.get_by_text("There is something of this name already.")).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.keyboard.press("Escape")

    copying = page.get_by_role("dialog", name="Copy to")
    copy(page, "notes.md", "archive")
    expect(copying).to_have_count(0)
    copy(page, "notes.md", "archive")
    page.get_by_role("dialog", name="Replace files?").get_by_role("button", name="Replace files").click()
    expect(copying).to_have_count(0)
    copy(page, "notes.md", "archive")
    page.get_by_role("dialog", name="Replace files?").get_by_role("button", name="Keep both").click()
    expect(copying).to_have_count(0)
    refused = [each for each in visitor.complaints if not re.match("(409|412) for", each)]
    visitor.complaints[:] = refused  # names that were taken

    page.get_by_role("button", name="Rename other.md").click()
    page.get_by_label("New name").fill("notes.md")
    page.get_by_role("dialog", name="Rename").get_by_role("button", name="Rename").click()
    page.get_by_role("button", name="Keep both").click()
    expect(page.get_by_text("Renamed to notes (2).md.")).to_be_visible()
    page.get_by_role("button", name="Rename notes (2).md").click()
    page.get_by_label("New name").fill("notes.md")
    page.get_by_role("dialog", name="Rename").get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="Replace what is there?")).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.get_by_role("button", name="Replace entries").click()
    expect(page.get_by_role("link", name="notes (2).md", exact=True)).to_have_count(0)

    page.get_by_label("Select notes.md").check()
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("Directory in this folder").fill("archive")
    page.get_by_role("button", name="Move entries").click()
    page.get_by_role("button", name="Replace entries").click()
    page.get_by_role("link", name="archive", exact=True).click()
    expect(page.get_by_role("link", name="notes (2).md", exact=True)).to_be_visible()  # the copy beside the first
    page.get_by_role("link", name="notes.md", exact=True).click()
    expect(page.get_by_label("Text of the file")).to_have_value("text of other.md")


def test_uploads_whose_names_are_taken_are_kept_beside_the_others(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    names = ("large.bin", "one.txt", "two.txt", "new.txt")
    visitor.go("/folders/new/")
    new_folder(page, "beside")
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url.rsplit("=")[-1]) if one.method == "PUT" else None)
    for again, chosen in enumerate((names[:3], names)):
        for name in names:
            (tmp_path / name).write_bytes(os.urandom(9 * 2**20 if name == "large.bin" else 10 + again))
        page.locator("#pick-files").set_input_files([str(tmp_path / name) for name in chosen])
        if again:  # once about the large file, once about the small ones, which come together
            for text in (re.compile("large.bin|2 of these"), re.compile("large.bin|2 of these")):
                dialog = page.get_by_role("dialog", name="Replace files?")
                expect(dialog.locator("[data-text]")).to_have_text(text)
                dialog.get_by_role("button", name="Keep both").click()
        expect(page.locator("#upload [data-hide]")).to_be_visible()
        page.get_by_role("button", name="Hide").click()
    assert sent == ["never", "never", "keep-both"]  # the server chooses the names of all files in one request
    shown = page.locator("table.entries tbody .entry-name")
    both = ["large (2).bin", "large.bin", "new.txt", "one (2).txt", "one.txt", "two (2).txt", "two.txt"]
    expect(shown).to_have_text(both)

    page.get_by_role("button", name="New directory").click()
    page.get_by_role("dialog", name="New directory").get_by_label("Name").fill("data.v2")
    page.get_by_role("button", name="Create directory").click()
    (tmp_path / "data.v2").write_bytes(os.urandom(9 * 2**20))
    page.locator("#pick-files").set_input_files([str(tmp_path / "data.v2")])
    dialog = page.get_by_role("dialog", name="This name is taken")  # asked before any byte is sent
    expect(dialog).to_contain_text("data.v2 is a directory here, which a file cannot replace.")
    expect(dialog.get_by_role("button", name="Replace files")).to_have_count(0)
    dialog.get_by_role("button", name="Keep both").click()
    expect(page.locator(".upload-state")).to_have_text("Uploaded")
    page.get_by_label("Select data.v2", exact=True).check()
    page.get_by_role("button", name="Copy…").click()
    page.get_by_role("button", name="Copy entries").click()
    page.get_by_role("dialog", name="Replace files?").get_by_role("button", name="Keep both").click()
    expect(shown).to_have_text(["data.v2", "data.v2 (2)", "data (2).v2", *both])
    visitor.complaints[:] = [each for each in visitor.complaints if not re.match("409 for", each)]


def test_a_name_that_is_taken_during_a_large_upload_costs_no_second_upload(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "model.bin").write_bytes(os.urandom(9 * 2**20))
    visitor.go("/folders/new/")
    new_folder(page, "meanwhile")
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.method) if "/uploads" in one.url else None)

    def take(route: Route) -> None:
        page.evaluate("folderFiles.ask('PUT', '/content?path=model.bin', { body: 'faster' }).then(() => 0)")
        route.continue_()

    page.route("**/uploads/*", take, times=1)
    page.locator("#pick-files").set_input_files([str(tmp_path / "model.bin")])
    page.get_by_role("dialog", name="Replace files?").get_by_role("button", name="Keep both").click()
    expect(page.locator(".upload-state")).to_have_text("Uploaded")
    assert sent.count("PATCH") == 1
    with page.expect_download() as download:
        page.get_by_role("link", name="Download model (2).bin").click()
    assert Path(download.value.path()).read_bytes() == (tmp_path / "model.bin").read_bytes()
    visitor.complaints[:] = [each for each in visitor.complaints if not re.match("409 for", each)]


def copy(page: Page, name: str, target: str) -> None:
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Copy…").click()
    page.get_by_label("Directory in this folder").fill(target)
    page.get_by_role("button", name="Copy entries").click()


def test_an_upload_that_fails_is_tried_again_and_one_is_cancelled(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "small.txt").write_text("x")
    (tmp_path / "large.bin").write_bytes(bytes(20 * 2**20))
    visitor.go("/folders/new/")
    new_folder(page, "uploads")
    refusal = {"code": "quota", "message": "It is full."}
    shared = {"Access-Control-Allow-Origin": "*"}
    page.route("**/archive?**", lambda route: route.fulfill(status=507, headers=shared, json=refusal))
    page.locator("#pick-files").set_input_files(str(tmp_path / "small.txt"))
    expect(page.locator(".upload-state")).to_have_text("Failed: It is full.")
    page.unroute("**/archive?**")
    visitor.complaints.clear()  # the browser tells of what was cut
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".upload-state")).to_have_text("Uploaded")
    page.get_by_role("button", name="Hide").click()

    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 2**20}
    network.send("Network.emulateNetworkConditions", slow)
    page.locator("#pick-files").set_input_files(str(tmp_path / "large.bin"))
    expect(page.locator(".upload-list progress")).not_to_have_js_property("value", 0)
    page.locator(".upload-list").get_by_role("button", name="Cancel").click()
    expect(page.locator(".upload-state")).to_have_text("Cancelled")
    network.send("Network.emulateNetworkConditions", slow | {"uploadThroughput": -1})
    page.reload()
    expect(page.get_by_role("link", name="small.txt", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="large.bin", exact=True)).to_have_count(0)


def test_uploads_wait_while_the_storage_host_is_unreachable(walk: Visit, campus: Campus) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    visitor.go("/folders/new/")
    new_folder(page, "away")
    upload, reason = (
        page.get_by_role("button", name="Upload files"),
        page.get_by_text("The storage host is unreachable:"),
    )
    expect(upload).to_be_enabled()
    expect(reason).to_be_hidden()
    marker = campus.platform.data / "folders" / MARKER
    aside = marker.rename(marker.with_name("aside"))
    try:
        page.evaluate("document.dispatchEvent(new CustomEvent('folder-changed'))")  # the next look would be in 5 s
        expect(upload).to_be_disabled()
        expect(page.get_by_role("button", name="New directory")).to_be_disabled()
        expect(reason).to_be_visible()
    finally:
        aside.rename(marker)
    page.evaluate("document.dispatchEvent(new CustomEvent('folder-changed'))")
    expect(upload).to_be_enabled()
    expect(reason).to_be_hidden()


def test_an_upload_goes_on_after_its_storage_host_was_away(walk: Visit, campus: Campus, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "large.bin").write_bytes(os.urandom(9 * 2**20))
    visitor.go("/folders/new/")
    new_folder(page, "away-for-a-while")
    marker = campus.platform.data / "folders" / MARKER
    aside = marker.with_name("aside")

    def leave(route: Route) -> None:
        marker.rename(aside)
        route.continue_()

    page.route("**/uploads/*", leave, times=1)  # the first part
    try:
        with page.expect_response(lambda one: one.request.method == "HEAD" and one.status == 503):
            page.locator("#pick-files").set_input_files(str(tmp_path / "large.bin"))
        expect(page.locator(".upload-state")).to_have_text("interrupted, trying again")
    finally:
        aside.rename(marker)
    expect(page.locator(".upload-state")).to_have_text("Uploaded")
    visitor.complaints.clear()  # the browser tells of what was refused


def test_a_person_without_access_any_more_is_told_so(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "small.txt").write_text("x")
    visitor.go("/folders/new/")
    new_folder(page, "no-access")
    page.route("**/folders/**", lambda route: route.fulfill(status=404))  # as for somebody whose share was revoked
    page.evaluate("document.dispatchEvent(new CustomEvent('folder-changed'))")
    expect(page.get_by_role("alert").get_by_text("You no longer have access to these files.")).to_be_visible()
    expect(page.get_by_role("button", name="New directory")).to_be_disabled()
    page.locator("#pick-files").set_input_files(str(tmp_path / "small.txt"))
    expect(page.locator(".upload-state")).to_have_text("Failed: You no longer have access to these files.")
    page.unroute("**/folders/**")
    visitor.complaints.clear()  # the browser tells of what was refused


def test_a_notebook_and_a_table_are_shown_as_such(walk: Visit, campus: Campus, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    hostile = "<img src=x onerror=alert(1)>"
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["42\n"]},
        {"output_type": "display_data", "data": {"image/png": PIXEL, "text/html": hostile}},
        {"output_type": "error", "ename": "E", "evalue": "x", "traceback": ["\x1b[31mE\x1b[0m: x"]},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Training\n", hostile]},
        {"cell_type": "code", "execution_count": 7, "source": "print(40 + 2)", "outputs": outputs},
    ]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells}))
    rows = "".join(f'{number},"a ""b"", {number}"\r\n' for number in range(600))
    (tmp_path / "runs.csv").write_bytes(f"\ufeffrun,name\r\n{rows}".encode())
    visitor.go("/folders/new/")
    new_folder(page, "previews")
    explorer = page.url
    page.locator("#pick-files").set_input_files([str(tmp_path / "train.ipynb"), str(tmp_path / "runs.csv")])
    page.get_by_role("link", name="train.ipynb", exact=True).click()
    preview = page.get_by_role("region", name="Preview")
    expect(preview.get_by_text("print(40 + 2)")).to_be_visible()
    expect(preview.get_by_role("img", name="Output of cell 2")).to_have_js_property("naturalWidth", 1)
    assert visitor.faults_in_every_light() == []
    page.get_by_role("button", name="Text", exact=True).click()
    expect(page.get_by_label("Text of the file")).to_have_value(re.compile("execution_count"))

    visitor.go(explorer)
    page.get_by_role("link", name="runs.csv", exact=True).click()
    expect(preview.get_by_text("The first 500 of 600 rows.")).to_be_visible()
    assert visitor.faults_in_every_light() == []
    page.get_by_role("button", name="Text", exact=True).click()
    page.get_by_label("Text of the file").fill("\ufeffrun,name\n1,new\n")
    page.get_by_role("button", name="Preview").click()
    expect(preview.locator("tbody tr")).to_have_text(["1new"])
    page.keyboard.press("Control+s")
    page.get_by_role("button", name="Text", exact=True).click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    (saved,) = (campus.platform.data / "folders").glob("*/*/data/runs.csv")
    assert saved.read_bytes() == "\ufeffrun,name\r\n1,new\r\n".encode()  # with the line ends that it had


def lose_answers(page: Page) -> list[str]:
    """Let the answer to the next upload of each kind be lost on its way; returns the methods that were answered."""
    devtools, lost = page.context.new_cdp_session(page), list[str]()

    def lose(event: Any) -> None:
        method, request = event["request"]["method"], {"requestId": event["requestId"]}
        if method in ("PATCH", "PUT") and method not in lost:
            lost.append(method)
            devtools.send("Fetch.failRequest", {**request, "errorReason": "ConnectionReset"})
        else:
            devtools.send("Fetch.continueRequest", request)

    devtools.on("Fetch.requestPaused", lose)
    patterns = [{"urlPattern": pattern, "requestStage": "Response"} for pattern in ("*/uploads/*", "*/archive?*")]
    devtools.send("Fetch.enable", {"patterns": patterns})
    return lost


def test_an_upload_whose_answer_is_lost_is_called_uploaded(walk: Visit, tmp_path: Path) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    (tmp_path / "small.txt").write_text("small")
    (tmp_path / "large.bin").write_bytes(os.urandom(9 * 2**20))
    visitor.go("/folders/new/")
    new_folder(page, "lost-answers")
    lost = lose_answers(page)
    page.locator("#pick-files").set_input_files([str(tmp_path / name) for name in ("small.txt", "large.bin")])
    states = page.locator(".upload-state")
    expect(states).to_have_text(["Uploaded", "Uploaded"])
    assert sorted(lost) == ["PATCH", "PUT"]
    visitor.complaints.clear()  # the browser tells of what was cut
    with page.expect_download() as download:
        page.get_by_role("link", name="Download large.bin").click()
    assert Path(download.value.path()).read_bytes() == (tmp_path / "large.bin").read_bytes()
