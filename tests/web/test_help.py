"""The guides under Help, the search in them, and the links that lead to their sections."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.portal.web.account.menu import MENU as ACCOUNT_MENU
from backendai.portal.web.admin.menu import MENU as PANEL_MENU
from backendai.portal.web.guides import rendering
from backendai.portal.web.guides.documents import ADMIN_GUIDE, GUIDES, USER_GUIDE, Guide
from backendai.portal.web.guides.rendering import page_of
from tests.cast import Cast
from tests.web.conftest import HTMX

Browse = Callable[[User], Client]
TEMPLATES = Path(settings.BASE_DIR) / "templates"
_GUIDE_TAG = re.compile(r'{%\s*guide\s+"([^"]+)"(?:\s+"([^"]+)")?\s*%}')
_HELP_WITH = re.compile(r'_help\.html" with [^%]*anchor="([^"]+)"')
_DEFAULT = re.compile(r'guide anchor\|default:"([^"]+)"')
_LINK = re.compile(r'href="/help/([a-z-]+)/#guide-([^"]+)"')
_FOR_ALL = {
    "user-guide", "rest", "first-session", "train-and-keep", "class-of-twenty", "vs-code", "foreign-clients",
    "from-slurm", "from-jupyterhub", "from-backend-ai",
}  # fmt: skip
_OWN = re.compile(r'href="#guide-([^"]+)"')


def anchors(slug: str) -> frozenset[str]:
    return page_of(next(guide for guide in GUIDES if guide.slug == slug), GUIDES).anchors


def links_in_templates() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        found |= {(slug or USER_GUIDE, anchor) for anchor, slug in _GUIDE_TAG.findall(text)}
        found |= {(USER_GUIDE, anchor) for anchor in _HELP_WITH.findall(text) + _DEFAULT.findall(text)}
    return found


def test_every_link_to_a_section_leads_to_one() -> None:
    links = links_in_templates()
    assert {("user-guide", "apps"), ("user-guide", "how-much-it-gets"), ("user-guide", "idle-checks")} <= links
    for slug, anchor in links:
        assert anchor in anchors(slug), f"{slug}#{anchor}"


def test_every_page_of_the_account_and_of_the_administration_has_its_section() -> None:
    assert {entry.guide for entry in ACCOUNT_MENU} <= anchors(USER_GUIDE)
    assert {page.guide for _, pages in PANEL_MENU for page in pages} <= anchors(ADMIN_GUIDE)


def html_of(guide: Guide) -> str:
    page = page_of(guide, GUIDES)
    return page.lead + "".join(section.title + section.html for section in page.sections)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.slug)
def test_links_between_and_within_the_guides_lead_to_sections(guide: Guide) -> None:
    html = html_of(guide)
    for slug, anchor in _LINK.findall(html):
        assert anchor in anchors(slug), f"{guide.slug}.md links to {slug}.md#{anchor}"
    for anchor in _OWN.findall(html):
        assert anchor in anchors(guide.slug), f"{guide.slug}.md links to #{anchor}"


def page_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> rendering.Page:
    (tmp_path / "user-guide.md").write_text(text)
    monkeypatch.setattr("backendai.portal.web.guides.documents.FOLDER", tmp_path)
    monkeypatch.setattr(rendering, "_kept", {})
    return page_of(GUIDES[0], GUIDES[:1])


def test_no_markup_of_a_file_reaches_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "# Title <b>x</b>\n\n<script>alert(1)</script>\n\n## A <i>b</i>\n\n[x](javascript:alert(1)) "
        "[y](data:text/html,z) [z](//evil.example) ![p](https://evil.example/p.png) ![q](../../etc/passwd)\n\n"
        '```\n</code><script>\n```\n\n[e](https://ok.example "a\\" onclick=b") [s](admin-guide.md#people)\n'
    )
    page = page_from(tmp_path, monkeypatch, text)
    html = page.title + page.lead + "".join(part.title + part.html for part in page.sections)
    assert set(re.findall(r"<([a-z0-9]+)", html)) == {"p", "span", "pre", "code", "a"}
    assert re.findall(r'href="([^"]*)"', html) == ["https://ok.example"], "a guide that one may not read is no link"
    assert "src=" not in html and "onclick" not in html


def test_headings_that_are_alike_have_anchors_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_from(tmp_path, monkeypatch, "# T\n\nlead\n\n## It's *so*: `a_b`\n\none\n\n### Same\n\n## Same\n\ntwo\n")
    assert [(part.level, part.anchor) for part in page.sections] == [
        (2, "guide-its-so-a_b"),
        (3, "guide-same"),
        (2, "guide-same-1"),
    ]
    assert page.lead == "<p>lead</p>\n"


def test_a_guide_is_rendered_once_and_again_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page_from(tmp_path, monkeypatch, "# One\n")
    assert page_of(GUIDES[0], GUIDES[:1]) is first
    (tmp_path / "user-guide.md").write_text("# Two\n")
    os.utime(tmp_path / "user-guide.md", ns=(1, 1))
    assert page_of(GUIDES[0], GUIDES[:1]).title == "Two"


@pytest.mark.django_db
def test_help_is_in_the_menu_and_shows_the_user_guide(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    assert 'href="/help/"' in client.get("/dashboard/").content.decode()
    text = client.get("/help/").content.decode()
    assert '<h1 lang="en">User guide</h1>' in text
    assert 'id="guide-your-first-session"' in text and 'href="#guide-your-first-session"' in text
    assert Client().get("/help/").headers["Location"].startswith("/login/")


@pytest.mark.django_db
def test_the_user_guide_has_the_address_of_this_site_for_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SSH_PUBLIC_HOST", "gate.example.org")
    monkeypatch.setattr(settings, "SSH_PUBLIC_PORT", 8622)
    monkeypatch.setattr(rendering, "_kept", {})
    guide = next(guide for guide in GUIDES if guide.slug == USER_GUIDE)
    text = " ".join(section.html for section in page_of(guide, GUIDES).sections)
    assert "ssh -p 8622 train@gate.example.org" in text and "the address in <code>HOST</code>" in text
    assert "2200" not in text and "@HOST" not in text


def test_the_guides_of_administrators_are_for_administrators(cast: Cast, browse: Browse) -> None:
    alice, dana = browse(cast.alice), browse(cast.dana)
    for guide in GUIDES:
        is_for_all = guide.slug in _FOR_ALL
        assert alice.get(f"/help/{guide.slug}/").status_code == (200 if is_for_all else 404)
        assert dana.get(f"/help/{guide.slug}/").status_code == 200
    assert "/help/admin-guide/" not in alice.get("/help/").content.decode()
    assert dana.get("/help/benchmarks/").status_code == 404


@pytest.mark.django_db
def test_a_search_finds_sections_of_the_guides_that_one_may_read(cast: Cast, browse: Browse) -> None:
    text = browse(cast.alice).get("/help/?q=DOTFILES permissions").content.decode()
    assert "#guide-what-every-session-finds" in text and "#guide-launch-a-session" not in text.partition("<article")[2]
    part = browse(cast.alice).get("/help/?q=dotfiles", **HTMX).content.decode()
    assert part.strip().startswith('<article class="guide-text"')
    assert "0 sections" in browse(cast.alice).get("/help/?q=BACKENDAI_REQUIRE_MFA").content.decode()
    assert "0 sections" not in browse(cast.dana).get("/help/?q=BACKENDAI_REQUIRE_MFA").content.decode()


@pytest.mark.django_db
def test_a_search_puts_a_title_that_fits_first_and_then_who_speaks_of_it_most(
    cast: Cast, browse: Browse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (
        "# Guide\n\n## Once\n\nidle checks\n\n## Often\n\nidle checks, idle, checks\n\n"
        "## Checks\n\nidle\n\n## Idle checks\n\nx\n"
    )
    (tmp_path / "user-guide.md").write_text(guide)
    (tmp_path / "rest.md").write_text("# REST\n\n## Listing idle checks\n\nidle idle checks\n")
    monkeypatch.setattr("backendai.portal.web.guides.documents.GUIDES", GUIDES[:2])
    monkeypatch.setattr("backendai.portal.web.guides.documents.FOLDER", tmp_path)
    monkeypatch.setattr(rendering, "_kept", {})
    text = browse(cast.alice).get("/help/?q=Idle checks", **HTMX).content.decode()
    titles = re.findall(r"<h2><a [^>]*>([^<]*)</a>", text)
    assert titles == ["Listing idle checks", "Idle checks", "Checks", "Often", "Once"]
    assert "5 sections found." in text


@pytest.mark.django_db
def test_a_link_within_a_guide_leads_to_the_guide_from_a_search(cast: Cast, browse: Browse) -> None:
    text = browse(cast.alice).get("/help/?q=bootstrap script", **HTMX).content.decode()
    assert 'href="#' not in text
    assert text.count('href="/help/user-guide/#guide-what-every-session-finds"') == 2, "its title, and a link to it"


@pytest.mark.django_db
def test_pictures_of_the_guides_are_served_and_nothing_else(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    picture = client.get(reverse("web:help_picture", args=["launch"]))
    assert (picture.status_code, picture["Content-Type"]) == (200, "image/png")
    assert client.get(reverse("web:help_picture", args=["nothing"])).status_code == 404
    assert client.get("/help/pictures/..%2fuser-guide.png").status_code == 404


def test_the_guides_are_in_the_image_of_the_platform() -> None:
    root = Path(settings.BASE_DIR)
    assert "COPY docs /app/docs" in (root / "Dockerfile").read_text()
    assert "!docs" in (root / ".dockerignore").read_text().split()


@pytest.mark.django_db
def test_pages_lead_to_their_sections(cast: Cast, browse: Browse) -> None:
    client = browse(cast.dana)
    for address, link in (
        ("/account/tokens/", "/help/user-guide/#guide-scripts"),
        ("/sessions/new/", "/help/user-guide/#guide-how-much-it-gets"),
        ("/manage/users/", "/help/admin-guide/#guide-people"),
        ("/manage/idle-checkers/new/", "/help/admin-guide/#guide-idle-checkers"),
    ):
        assert link in client.get(address).content.decode(), address
