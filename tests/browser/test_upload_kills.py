"""A large upload in a browser while the processes that it passes are killed."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Campus, Visit
from tests.browser.people import ALICE
from tests.browser.test_explorer import new_folder
from tests.patience import patient

pytestmark = [pytest.mark.browser, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]
_SIZE, _PIECE = 2**30, 2**24
_BYTES_PER_SECOND = 48 * 2**20
# From which tenth of the file on which processes are killed, together.
_KILLS = {1: ["appproxy"], 2: ["valkey"], 4: ["web"], 5: ["files"], 7: ["appproxy", "valkey", "web", "files"]}


def write_large(path: Path) -> str:
    """Write a file of random bytes; return their SHA-256."""
    told = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(_SIZE // _PIECE):
            piece = os.urandom(_PIECE)
            told.update(piece)
            file.write(piece)
    return told.hexdigest()


def test_an_upload_goes_on_when_portal_proxy_redis_and_file_server_are_killed(
    walk: Visit, campus: Campus, tmp_path: Path
) -> None:
    visitor, platform = walk(ALICE), campus.platform
    page, large = visitor.page, tmp_path / "large.bin"
    digest = write_large(large)
    visitor.go("/folders/new/")
    new_folder(page, "kills")
    offsets: list[int] = []
    page.on("request", lambda one: one.method == "PATCH" and offsets.append(int(one.headers["upload-offset"])))
    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": _BYTES_PER_SECOND}
    network.send("Network.emulateNetworkConditions", slow)
    page.locator("#pick-files").set_input_files(str(large))
    for tenth, roles in _KILLS.items():
        bar = page.locator(".upload-list progress")
        expect(bar).to_have_attribute("value", re.compile(rf"^(0\.[{tenth}-9]|1)"), timeout=patient(120_000))
        former = {role: platform.kill(role) for role in roles}
        for role, pid in former.items():
            platform.wait_for_restart(role, pid)
    expect(page.locator(".upload-state")).to_have_text("Uploaded", timeout=patient(240_000))
    assert len(offsets) > 3 and offsets == sorted(offsets)  # it never began anew
    (stored,) = (platform.data / "folders").glob("*/*/data/large.bin")
    with stored.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    visitor.complaints.clear()  # the browser tells of what was cut
    page.reload()
    expect(page.get_by_role("link", name="large.bin", exact=True)).to_be_visible()
    assert not list((stored.parents[1] / "incoming").glob("*.upload"))
