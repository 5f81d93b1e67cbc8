"""A folder from the launcher to a colleague: a session writes, another reads under an alias, and Bob may read.

On two agents that share a path, and on machines with and without Docker where an ordinary user started the platform.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from subprocess import CompletedProcess
from uuid import UUID

import pytest
from docker import APIClient
from playwright.sync_api import Page, expect

from backendai.agent.mounts.hosts import KERNEL_USER
from backendai.base.paths.storage_layout import folder_path
from tests.agent.images import ensure_tmux_image
from tests.browser.chromium import Chromium
from tests.browser.conftest import Visit
from tests.browser.people import ALICE, BOB
from tests.browser.visitor import RESOURCES, REVIEW, Visitor, run_on
from tests.patience import patient, until
from tests.system.bare import Start
from tests.system.client import Client
from tests.system.images import ensure_tiny
from tests.system.platform import Platform
from tests.system.test_bare_machines import Ground, Machine
from tests.system.test_bare_machines import ground as ground

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(600),  # an ordinary user's platform gets an environment of its own
]
DATA = "Data & storage"
ALIAS = "weights"
_STARTED_MS = patient(45_000)
_AUDITED_WITHIN = 30.0
Manage = Callable[..., CompletedProcess[str]]


@dataclass(frozen=True)
class Site:
    """Where the story happens: Alice trains on the first agent, and all other sessions run on the last."""

    url: str
    alice: Client
    bob: Client
    image: str
    agents: list[str]
    manage: Manage
    folders: Path
    owner: int
    mark: str = ""

    @property
    def folder(self) -> str:
        """The name of the folder; a second try on this site meets nothing of the first."""
        return f"corpus-{self.mark}"

    @classmethod
    def of(cls, platform: Platform | Start, image: str, folders: Path, owner: int) -> Site:
        """Let Alice and Bob in."""
        alice, bob = (Client(platform.url, token) for token in run_on(platform, "make_pair").split())
        agents = sorted(agent["name"] for agent in platform.client.agents())
        return cls(platform.url, alice, bob, image, agents, platform.manage, folders, owner)

    def audit(self) -> None:
        """Wait until ``manage.py audit`` finds nothing."""
        until(
            lambda: self.manage("audit").returncode == 0,
            _AUDITED_WITHIN,
            "the audit is clean",
            last=lambda: self.manage("audit").stdout,
        )


@pytest.fixture(scope="module", params=["two-agents", "user", "user-docker"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ground: Ground) -> Iterator[Site]:
    ensure_tiny()
    if request.param == "two-agents":
        engine = APIClient()
        shell = ensure_tmux_image(engine)
        engine.close()
        with Platform(tmp_path_factory.mktemp("life"), agents=2, images={"shell": shell}) as platform:
            yield Site.of(
                platform, "Shell", platform.data / "folders", KERNEL_USER if os.geteuid() == 0 else os.geteuid()
            )
        return
    machine = Machine(is_root=False, has_docker=request.param == "user-docker", has_bwrap=True)
    with ground.start(machine) as start:
        owner = ground.people[False].uid or os.geteuid()
        yield Site.of(start, start.image if start.has_docker else "Python", start.clone / "var" / "folders", owner)


@pytest.fixture
def visit(chromium: Chromium, site: Site) -> Iterator[Visit]:
    """Return a visitor; each must leave without a complaint."""
    visitors: list[Visitor] = []

    def come(email: str) -> Visitor:
        visitors.append(Visitor(chromium, site.url))
        return visitors[-1].sign_in(email)

    yield come
    for visitor in visitors:
        visitor.leave()


def launch(
    visitor: Visitor,
    site: Site,
    name: str,
    agent: str,
    target: str = "",
    create: bool = False,
    is_read_only: bool = False,
) -> str:
    """Launch a shell with the folder mounted, which the launcher creates if asked to; returns the session's id."""
    page = visitor.page
    visitor.go("/sessions/new/")
    page.get_by_label("Name optional").fill(f"{name}-{site.mark}")
    visitor.step(RESOURCES)
    page.get_by_role("radio", name=re.compile(rf"^{site.image}\b(?! \()")).check()
    page.get_by_label("CPU cores", exact=True).fill("0.2")
    page.get_by_label("Memory", exact=True).fill("64m")
    page.get_by_label("Agent", exact=True).select_option(agent)
    visitor.step(DATA)
    if create:
        page.get_by_role("button", name="Create folder").click()
        dialog = page.get_by_role("dialog", name="New folder")
        dialog.get_by_label("Name").fill(site.folder)
        dialog.get_by_role("button", name="Create folder").click()
        expect(dialog).to_be_hidden()
    mounted = page.get_by_role("checkbox", name=re.compile(f"^{site.folder}"))
    mounted.check()
    if target:
        page.get_by_label(f"Mount path of {site.folder}").fill(target)
    visitor.step(REVIEW)
    page.get_by_role("button", name="Launch", exact=True).click()
    if is_read_only:  # otherwise nobody asks: something is kept
        question = page.get_by_role("dialog", name="Folders are mounted read-only")
        question.get_by_role("button", name="Launch session").click()
    page.wait_for_url("**/?launched=*")
    session_id = page.url.partition("launched=")[2].partition(",")[0]
    visitor.go(f"/sessions/{session_id}/#terminal")
    expect(visitor.status).to_have_text("Running", timeout=_STARTED_MS)
    return session_id


def explorer_of(visitor: Visitor, site: Site) -> Page:
    """Open the folder from the list of folders."""
    visitor.go("/folders/")
    visitor.page.get_by_role("link", name=site.folder, exact=True).click()
    expect(visitor.page.get_by_role("heading", name=site.folder, level=1)).to_be_visible()
    return visitor.page


def test_a_folder_goes_from_session_to_session_and_to_a_colleague_who_cannot_write(visit: Visit, site: Site) -> None:
    site = replace(site, mark=token_hex(3))
    hers, watching = visit(ALICE), visit(ALICE)
    train = launch(hers, site, "train", site.agents[0], create=True)
    page = explorer_of(watching, site)
    folder = page.url.split("/folders/")[1].split("/")[0]
    written = page.get_by_role("link", name="model.txt", exact=True)
    expect(written).to_have_count(0)
    hers.type(f"echo loss-$((40+2)) > ~/{site.folder}/model.txt; echo saved-$?")
    expect(hers.screen).to_contain_text("saved-0")
    expect(written).to_be_visible()  # without a reload
    written.click()
    expect(page.get_by_label("Text of the file")).to_have_value("loss-42\n")
    on_disk = folder_path(site.folders, UUID(folder)) / "data"
    assert (on_disk.stat().st_uid, (on_disk / "model.txt").stat().st_uid) == (site.owner, site.owner)
    site.alice.end(train)

    again = launch(hers, site, "evaluate", site.agents[-1], target=ALIAS)
    hers.type(f"cat ~/{ALIAS}/model.txt && echo more >> ~/{ALIAS}/model.txt; pwd")
    expect(hers.screen).to_contain_text("loss-42")
    hers.page.get_by_role("tab", name="Overview").click()
    expect(hers.page.locator("#session-mounts")).to_contain_text(f"/home/work/{ALIAS}")
    site.alice.end(again)

    explorer_of(hers, site).get_by_role("link", name="Sharing").click()
    hers.page.get_by_label("E-mail address").fill(BOB)
    hers.page.get_by_label("Rights", exact=True).select_option(label="view")
    hers.page.get_by_role("button", name="Invite").click()
    expect(hers.page.get_by_text("invited, not yet accepted")).to_be_visible()

    his = visit(BOB)
    his.go("/folders/")
    his.page.get_by_role("button", name=f"Accept {site.folder}").click()
    explorer_of(his, site)
    expect(his.page.get_by_role("button", name="Upload files")).to_have_count(0)
    expect(his.page.get_by_role("button", name=re.compile("^Rename"))).to_have_count(0)
    with his.page.expect_download() as download:
        his.page.get_by_role("link", name="Download model.txt").click()
    assert download.value.path().read_text() == "loss-42\nmore\n"
    writes = (
        ("directories/", {"path": "d"}),
        ("deletions/", {"paths": ["model.txt"]}),
        ("ticket/", {"rights": "edit"}),
    )
    for verb, wish in writes:
        assert site.bob._send("POST", f"folders/{folder}/{verb}", json=wish).status_code == 403
    for agent in site.agents:
        reads = launch(his, site, "reads", agent, is_read_only=True)
        his.type(f"cd ~/{site.folder}; cat model.txt; echo x > model.txt; rm -f model.txt; mkdir d")
        expect(his.screen).to_contain_text("more")
        expect(his.screen).to_contain_text(re.compile("(Read-only file system.*){3}", re.DOTALL))
        site.bob.end(reads)
    site.audit()
