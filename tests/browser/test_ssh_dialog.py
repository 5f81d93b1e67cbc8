"""The dialog that says how a session is reached by SSH, and the page of SFTP into all folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.browser.visitor import run_on

pytestmark = [pytest.mark.browser, pytest.mark.system]


@pytest.fixture
def session_id(campus: Campus) -> Iterator[str]:
    """A cluster of Alice's that runs."""
    session = campus.alice.launch("by-ssh", cluster_size=2)
    yield str(campus.alice.wait_until_running(session["id"])["id"])
    campus.alice.end(session["id"])


@pytest.mark.core
def test_commands_are_copied_and_a_key_is_downloaded(
    walk: Visit, campus: Campus, session_id: str, tmp_path: Path
) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.go(f"/sessions/{session_id}/")
    page.get_by_role("link", name="SSH", exact=True).first.click()
    dialog = page.get_by_role("dialog", name="SSH into by-ssh")
    for line in ("by-ssh@127.0.0.1", "by-ssh+sub1@127.0.0.1", "Host by-ssh", "SHA256:", "ssh-ed25519 "):
        expect(dialog.get_by_text(line).first).to_be_visible()
    dialog.get_by_role("button", name="Copy the command").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("ssh -p ") and copied.endswith(" by-ssh@127.0.0.1")
    expect(dialog.get_by_role("link", name="Open in VS Code")).to_have_attribute(
        "href", f"vscode://vscode-remote/ssh-remote+by-ssh@127.0.0.1:{copied.split()[2]}/home/work"
    )
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download key", exact=True).click()
    assert download.value.suggested_filename == "id_by-ssh"
    download.value.save_as(tmp_path / "key")
    assert load_ssh_private_key((tmp_path / "key").read_bytes(), password=None)
    assert not visitor.faults_in_every_light()


@pytest.fixture
def folders(campus: Campus) -> Iterator[None]:
    """Folders of Alice; the session that opens them ends, and they go, for other tests begin without any."""
    run_on(campus.platform, "make_folders", "make_folders")
    yield
    campus.alice.end(*[one["id"] for one in campus.alice.sessions() if one["type"] == "system"])
    run_on(campus.platform, "remove_folders", "make_folders")


def test_the_page_of_all_folders_has_commands_and_starts_their_session(
    walk: Visit, campus: Campus, folders: None
) -> None:
    visitor = walk(ALICE)
    page = visitor.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.go("/folders/sftp/")
    expect(page.get_by_role("heading", name="Folders by SFTP")).to_be_visible()
    fingerprint, line = page.get_by_text("SHA256:"), page.get_by_text("ssh-ed25519 ")
    expect(fingerprint).to_be_visible()
    expect(line).to_contain_text("[127.0.0.1]:")
    copied = []
    for number in range(3):
        page.get_by_role("button", name="Copy the command").nth(number).click()
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    assert [one.split()[0] for one in copied] == ["sftp", "scp", "rsync"]
    assert all(" folders@127.0.0.1" in one for one in copied)
    assert all(one.endswith(":FOLDER/") for one in copied[1:])
    page.get_by_role("button", name="Start now").click()
    expect(page.get_by_role("link", name="folders-")).to_be_visible()  # the session, by its name
    expect(page.get_by_role("button", name="Start now")).to_have_count(0)
    assert not visitor.faults_in_every_light()


def test_it_fits_on_a_phone(walk: Visit, session_id: str) -> None:
    visitor = walk(ALICE, on_phone=True)
    visitor.go(f"/sessions/{session_id}/ssh/")
    expect(visitor.page.get_by_role("heading", name="SSH into by-ssh")).to_be_visible()
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 375
