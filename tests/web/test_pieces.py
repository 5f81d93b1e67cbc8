"""Small pieces of pages, and the files behind them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html

from backendai.domain.compute.status import Outcome, Status
from backendai.portal.web.dashboard.resources import Bar
from backendai.portal.web.frame.bundles import SCRIPTS, STYLES, BundledStorage, addresses_of
from backendai.portal.web.frame.statuses import appearance_of
from backendai.portal.web.templatetags.portal import ago, amounts, due, elapsed, icon, with_times

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
LEFT_OUT = Path(__file__).parent / "tabler_left_out.txt"
_CLASSES = re.compile(r"""(?:class(?:Name|es)?["']?\s*[=:]|classList\.\w+\()\s*["'`](.*?)["'`)]""", re.DOTALL)
_TAGS = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)


@pytest.mark.parametrize("status", [*Status.values, *Outcome.values])
def test_it_has_a_word_and_a_tone_for_every_status(status: str) -> None:
    look = appearance_of(status)
    assert look.word
    assert look.tone in {"busy", "good", "wait", "bad", "over"}


def test_it_turns_a_spinner_exactly_while_something_moves() -> None:
    moving = {status for status in Status.values if appearance_of(status).is_moving}
    assert moving == {"SCHEDULED", "PULLING", "CREATING", "STOPPING", "TERMINATING"}


def test_it_writes_amounts_for_people() -> None:
    text = amounts({"mem": str(4 * 2**30), "cuda.device": "1", "cpu": "0.5"}).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "0.5 CPU · 4 GiB · 1 GPU"


def test_it_writes_times_that_work_without_scripts() -> None:
    moment = timezone.now() - timedelta(minutes=5)
    assert ">5 min ago</time>" in ago(moment)
    assert ">any moment now</time>" in due(moment)
    assert ">0:05:00</time>" in elapsed(moment, moment + timedelta(minutes=5))
    assert ago(None) == "–"


def test_it_puts_moments_in_a_text_into_the_clock_of_whoever_reads_it_now() -> None:
    text = "Asked to start at 2026-05-01 10:00:00 UTC by <b>."
    now = datetime(2026, 5, 1, 9, 50, tzinfo=UTC)
    with mock.patch("django.utils.timezone.now", lambda: now):
        early = with_times(text)
    assert 'datetime="2026-05-01T10:00:00+00:00"' in early and "in 10 min" in early and "&lt;b&gt;" in early
    with mock.patch("django.utils.timezone.now", lambda: now + timedelta(minutes=8)):
        assert "in 2 min" in with_times(text)
    assert with_times("2026-02-31 10:00:00 UTC") == "2026-02-31 10:00:00 UTC"
    assert 'datetime="2026-05-01T10:00:00+00:00"' in with_times("Those on it end by 2026-05-01 10:00 UTC.")
    assert with_times(format_html("<b>{}</b>", "&")) == "<b>&amp;</b>"


def test_it_never_shows_more_than_a_full_bar_or_less_than_nothing_free() -> None:
    overfull = Bar("cpu", used=9000, total=8000)
    assert (overfull.percent, overfull.free_text) == (100, "0")
    assert Bar("cpu", used=0, total=0).percent == 0


def test_it_refuses_icon_names_that_are_paths() -> None:
    with pytest.raises(ValueError, match="not an icon name"):
        icon("../web/login")


def test_it_keeps_scripts_and_styles_out_of_templates() -> None:
    refused = r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|hx-on|\|safe\b|autoescape off|https://"
    found = {path.name: hits for path in TEMPLATES if (hits := re.findall(refused, path.read_text()))}
    assert not found


def test_each_script_and_style_is_loaded_by_a_page_alone_or_in_a_bundle() -> None:
    assets = settings.BASE_DIR / "static"
    files = {str(path.relative_to(assets)) for kind in ("css", "js") for path in (assets / kind).iterdir()}
    alone = {name for path in TEMPLATES for name in re.findall(r"static '([\w/.-]+)'", path.read_text())}
    rooms = (STYLES, "css"), (SCRIPTS, "js")
    addresses = [one for bundles, kind in rooms for name in bundles for one in addresses_of(bundles, name, kind)]
    joined = [one.removeprefix(settings.STATIC_URL) for one in addresses]
    assert files - alone - set(joined) == {"css/appproxy.css"}  # the app proxy's own
    assert all((assets / part).is_file() for part in joined)


def test_a_release_joins_them_and_leads_pages_to_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = BundledStorage(location=tmp_path, base_url="/static/")
    for name in ["page.js", "times.js"]:
        (tmp_path / "js").mkdir(exist_ok=True)
        (tmp_path / "js" / name).write_text(f"let {name[0]};")
    monkeypatch.setattr("backendai.portal.web.frame.bundles.STYLES", {})
    monkeypatch.setattr("backendai.portal.web.frame.bundles.SCRIPTS", {"page": "page times"})
    monkeypatch.setattr("backendai.portal.web.frame.bundles.staticfiles_storage", storage)
    for _ in range(2):  # the next release replaces them
        assert not [error for *_, error in storage.post_process({}) if isinstance(error, Exception)]
    (address,) = addresses_of({"page": "page times"}, "page", "js")
    assert re.fullmatch(r"/static/js/bundle-page\.[0-9a-f]{12}\.js", address)
    assert (tmp_path / address.removeprefix("/static/")).read_text() == "let p;\nlet t;"


@pytest.mark.parametrize("place", ["templates/**/*.html", "static/js/*.js", "backendai/**/*.py"])
def test_no_class_is_in_use_whose_rules_were_left_out(place: str) -> None:
    """``bin/vendor-assets`` leaves out what of Tabler was not in use when it ran last: run it again."""
    left_out = set(LEFT_OUT.read_text().split())
    assert {"accordion", "carousel"} <= left_out
    for path in settings.BASE_DIR.glob(place):
        text = _TAGS.sub(" ", path.read_text())
        found = {name for names in _CLASSES.findall(text) for name in re.split(r"[^\w-]+", names)}
        assert not found & left_out, path


def test_it_ships_no_references_to_files_that_are_not_there() -> None:
    for asset in (settings.BASE_DIR / "static" / "vendor").iterdir():
        assert b"sourceMappingURL" not in asset.read_bytes(), asset.name
