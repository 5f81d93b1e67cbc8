"""Slot types, settings, announcements, information and maintenance in the administration pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.version import VERSION
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.language import choose_language
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog.models import Registry
from backendai.domain.catalog.registries import write_registry
from backendai.domain.cluster.models import Announcement, SiteSetting, SlotType
from backendai.domain.cluster.services import record_sync
from backendai.domain.cluster.site import change_site, site_settings
from backendai.domain.compute.models import Allocation
from backendai.portal.web.dashboard.configuration import masked
from backendai.portal.web.frame import build
from tests.cast import Cast
from tests.certificates import certificate, private_key
from tests.controller.clocks import sync_of
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
CANARY = "canary-7f3a"


@pytest.fixture
def nothing_answers() -> Iterator[None]:
    """No broker and no app proxy: what the page asks over the network fails at once."""
    with (
        mock.patch("redis.Redis.info", side_effect=ValueError),
        mock.patch("http.client.HTTPConnection.request", side_effect=OSError),
    ):
        yield


def text_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup(answer)).split())


def test_slots_are_shown_as_their_rows_say_and_unknown_ones_get_a_row(cast: Cast, dana: Client) -> None:
    agent = make_agent()
    record_sync(agent, sync_of(capacity={"cpu": "4", "tpu.core": "8", "tpu.mem": str(2**30)}), now=timezone.now())
    tpu = SlotType.objects.get(name="tpu.core")
    assert (tpu.kind, SlotType.objects.get(name="tpu.mem").kind) == ("count", "bytes")
    address = reverse("manage:slot-type", args=[tpu.pk])
    form = dana.get(address).context["form"]
    body = {"display_name": "TPU", "kind": "count", "unit": "cores", "rank": "5", "is_enabled": "on", "step": "0.5"}
    wrong = dana.post(address, body | {"kind": "unique", "version": form["version"].value()})
    assert wrong.context["form"].errors["step"] == ["Bytes and whole devices are counted in whole numbers."]
    assert dana.post(address, body | {"version": form["version"].value()}).status_code == 302
    page = text_of(dana.get("/"))
    assert "TPU 8 cores free of 8 cores" in page
    assert page.index("TPU") < page.index("CPU"), "in the order of their ranks"
    assert "TPU" in text_of(dana.get(reverse("web:launch")))
    entry = AuditEntry.objects.get(action="slot-type.change")
    assert entry.details["changes"]["quantum"] == [1, 500]
    assert "tpu.core" in text_of(dana.get(reverse("manage:slot-types")))


def test_a_launch_takes_steps_and_offered_slots_alone(cast: Cast, dana: Client) -> None:
    make_agent(capacity={"cpu": "4", "mem": str(2**33), "cuda.shares": "2", "cuda.device": "2"})
    make_session(cast.alice, resources={"cpu": 1, "mem": "1g", "cuda.shares": "0.25"})
    for amounts, code in (({"cuda.shares": "0.255"}, "wrong-step"), ({"cuda.device": "0.5"}, "wrong-step")):
        with pytest.raises(UserError, match="in steps of") as refused:
            make_session(cast.alice, resources={"cpu": 1, "mem": "1g"} | amounts)
        assert refused.value.code == code
    SlotType.objects.filter(name="cuda.device").update(is_enabled=False)
    with pytest.raises(UserError, match="not offered"):
        make_session(cast.alice, resources={"cpu": 1, "mem": "1g", "cuda.device": "1"})
    fields = dana.get(reverse("web:launch")).context["form"].fields
    assert "slot.cuda.shares" in fields
    assert "slot.cuda.device" not in fields


def test_the_settings_of_sessions_networks_are_checked_shown_and_kept(dana: Client) -> None:
    address = reverse("manage:settings")
    version = dana.get(address).context["form"]["version"].value()
    typed = {"custom_allocation": "on", "package_extra_indexes": "https://a.example\r\nhttps://b.example"}
    wrong = dana.post(address, typed | {"session_authorities": private_key(), "version": version})
    assert "contains a private key" in wrong.context["form"].errors["session_authorities"][0]
    right = {"session_authorities": certificate(), "package_index": "https://pypi.example", "version": version}
    assert dana.post(address, typed | right).status_code == 302
    assert site_settings().package_extra_indexes == ["https://a.example", "https://b.example"]
    page = dana.get(address)
    assert "Lab Root CA : valid until 2040-01-02" in text_of(page).replace("\u2068", "").replace("\u2069", "")
    again = {name: page.context["form"][name].value() for name in page.context["form"].fields}
    kept = {name: value for name, value in again.items() if value}
    assert dana.post(address, kept | {"container_caps": ""}).status_code == 302
    assert AuditEntry.objects.filter(action="site-settings.change").count() == 1, "the same again changes nothing"


def test_settings_hold_from_the_next_request_on(cast: Cast, dana: Client, browse: Browse) -> None:
    alice, agent = browse(cast.alice), make_agent("node-1")
    make_image()
    address, launch = reverse("manage:settings"), reverse("web:launch")
    assert 'id="preset-custom"' in markup(alice.get(launch))
    assert "Resources" in text_of(alice.get("/"))
    version = dana.get(address).context["form"]["version"].value()
    typed = {"agent_select": "on", "manual_image": "on", "container_caps": "cpu=2, mem=4g", "version": version}
    saved = dana.post(address, typed)
    assert saved.status_code == 302
    page = alice.get(launch)
    assert 'id="preset-custom"' not in markup(page)
    assert [name for name, _ in page.context["form"].fields["agents"].choices] == ["", "node-1"]
    assert 'class="card room"' not in markup(alice.get("/"))
    assert 'class="card room"' in markup(dana.get("/"))
    typed = alice.post(launch, {"image": "python", "session_type": "interactive", "cpu": "1", "mem": "1g",
        "project": cast.project.pk, "resource_group": "default", "preset": ""})  # fmt: skip
    assert "not allowed here" in typed.context["form"].errors["preset"][0]
    with pytest.raises(UserError, match="at most 2 here") as refused:
        make_session(cast.alice, resources={"cpu": 3, "mem": "1g"})
    assert (refused.value.code, refused.value.field) == ("above-container-cap", "resources.cpu")
    wrong = dana.post(address, {"container_caps": "cpu=much"})
    assert "container_caps" in wrong.context["form"].errors
    assert (wrong.status_code, SiteSetting.objects.count()) == (422, 6)
    assert dana.get(address).context["form"].initial["container_caps"] == {"cpu": "2", "mem": str(4 * 2**30)}
    entry = AuditEntry.objects.get(action="site-settings.change")
    assert set(entry.details["changes"]) == {
        "agent_select", "custom_allocation", "group_resources_visible", "container_caps", "manual_image",
        "session_shares",
    }  # fmt: skip
    assert agent.name == "node-1"


def test_where_no_group_is_the_default_the_launch_page_says_so(cast: Cast, browse: Browse) -> None:
    alice = browse(cast.alice)
    make_group("aaa")
    make_image()
    assert alice.get(reverse("web:launch")).context["form"].initial["resource_group"] == "aaa", "the only one"
    zzz = make_group("zzz")
    page = alice.get(reverse("web:launch"))
    assert "resource_group" not in page.context["form"].initial
    assert "none of them is the default" in text_of(page)
    choose_language(cast.alice, "ko")
    assert "기본으로 정해진 그룹이 없습니다" in text_of(alice.get(reverse("web:launch")))
    zzz.is_default = True
    zzz.save()
    assert alice.get(reverse("web:launch")).context["form"].initial["resource_group"] == "zzz"


def test_an_announcement_is_read_by_all_in_its_time_and_is_plain_text(cast: Cast, dana: Client, browse: Browse) -> None:
    alice, bar = browse(cast.alice), reverse("web:announcements")
    assert alice.get(bar, **HTMX).content.strip() == b""
    new = reverse("manage:announcement-new")
    now = timezone.now()
    text = "Down on Monday, see https://example.org <script>alert(1)</script>"
    body = {"text": text, "tone": "warning", "starts_at": f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M}"}
    over = dana.post(new, body | {"ends_at": f"{now - timedelta(hours=2):%Y-%m-%dT%H:%M}"})
    assert over.context["form"].errors["ends_at"] == ["It ends before it begins."]
    assert dana.post(new, body).status_code == 302
    shown = markup(alice.get(bar, **HTMX))
    assert "<script>" not in shown
    assert 'href="https://example.org"' in shown
    assert f'hx-get="{bar}"' in markup(alice.get("/"))
    one = Announcement.objects.get()
    Announcement.objects.update(ends_at=now - timedelta(minutes=1))
    assert alice.get(bar, **HTMX).content.strip() == b""
    assert dana.post(reverse("manage:announcement-delete", args=[one.pk])).status_code == 302


def test_information_tells_versions_and_health_and_no_secret(
    dana: Client, settings: Any, nothing_answers: None
) -> None:
    make_agent("node-1")
    settings.TICKET_KEY = settings.BROKER_PASSWORD = CANARY
    settings.REDIS_URL = f"redis://user:{CANARY}@redis.example:6379/0?password={CANARY}"
    page = dana.get(reverse("manage:information"))
    text = text_of(page)
    assert CANARY not in markup(page)
    assert settings.SECRET_KEY not in markup(page)
    assert "redis://•••@redis.example:6379/0" in text
    assert "TICKET_KEY set, not shown" in text
    states = {part.name: part.is_well for part in page.context["parts"]}
    assert (states["Broker"], states["App proxy"], states["Database"], states["Scheduler"]) == (
        False,
        False,
        True,
        False,
    )
    assert "node-1" in text
    (disk,) = [part for part in page.context["parts"] if part.name == "Disk"]
    assert " free at " in disk.text and str(settings.DATA_DIR) in disk.text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ANY_TOKEN", CANARY, "set, not shown"),
        ("ANY_PASSWORD", "", "not set"),
        ("URL", f"https://{CANARY}@example.org/x#{CANARY}", "https://•••@example.org/x"),
        ("URLS", [f"http://a:{CANARY}@b/", "plain"], "http://•••@b/, plain"),
        ("URL", f"http://[{CANARY}", "set, not shown"),
        ("TIME", timedelta(minutes=5), "5 min"),
        ("FLAG", False, "no"),
        ("SCRATCH_BYTES", 10 * 2**30, "10 GiB"),
    ],
)
def test_what_is_shown_of_a_setting_holds_no_secret(name: str, value: Any, shown: str) -> None:
    assert masked(name, value) == shown


def test_nobody_reverts_unseen_how_somebody_else_has_set_the_site(cast: Cast, dana: Client) -> None:
    address = reverse("manage:settings")
    page = dana.get(address)
    version = page.context["form"]["version"].value()
    assert f'value="{version}"' in markup(page), "the page sends it back"
    change_site(cast.dana, {"public_apps": True, "container_caps": {"cpu": "4"}}, now=timezone.now())
    sent = {"agent_select": "on", "container_caps": "", "version": version}
    told = dana.post(address, sent)
    assert told.status_code == 422
    text = told.context["form"].non_field_errors()[0]
    assert "Allow public apps is now yes; Allow sharing sessions is now yes; Maximum per kernel is now cpu=4" in text
    assert site_settings().public_apps
    again = sent | {"version": told.context["form"]["version"].value()}
    assert dana.post(address, again).status_code == 302, "seen, and saved all the same"
    assert not site_settings().public_apps


def test_the_books_are_verified_and_violations_named(cast: Cast, dana: Client) -> None:
    make_running_session(cast.alice)
    address = reverse("manage:maintenance")
    assert "violation" not in text_of(dana.get(address))
    assert "No problems found" in text_of(dana.post(address))
    Allocation.objects.filter(slot="cpu").update(amount=64_000)
    text = text_of(dana.post(address))
    assert "2 violations" in text
    assert "cpu 64 taken of 4" in text
    entry = AuditEntry.objects.filter(action="site.verify-books").latest("pk")
    assert entry.details == {"violations": 2}
    assert f"by {cast.dana.email}: 2 violations" in text_of(dana.get(address)), "the last result stays there"


def test_registries_are_looked_through_from_the_maintenance_page(
    cast: Cast, dana: Client, django_assert_max_num_queries: Any
) -> None:
    address = reverse("manage:maintenance")
    for name in ("lab", "hub", "off"):
        write_registry(None, Registry(), {"name": name, "url": f"https://{name}.example", "is_enabled": name != "off"})
    text = text_of(dana.get(address))
    assert "lab" in text and "never" in text and ">off<" not in text
    scan = reverse("manage:registry-scan", args=[Registry.objects.get(name="lab").pk])
    assert dana.post(scan, {"from": "maintenance"})["Location"] == address
    assert BackgroundJob.objects.get(kind="registry.scan").subject == "lab"
    with django_assert_max_num_queries(12):
        text = text_of(dana.get(address))
    assert "Waiting for a worker." in text and "Cancel…" in text


@pytest.mark.usefixtures("nothing_answers")
def test_information_tells_the_build_and_how_much_is_kept(cast: Cast, dana: Client, settings: Any) -> None:
    settings.BUILD_COMMIT, settings.BUILD_DATE = "0123456789abcdef", "2026-01-31"
    build.build_text.cache_clear()
    make_session(cast.alice)
    page = text_of(dana.get(reverse("manage:information")))
    build.build_text.cache_clear()
    assert f"Portal {VERSION} · 0123456789ab · 2026-01-31" in page
    assert "Pending sessions 1" in page
    assert "Compute sessions 1" in page or "Compute sessions about" in page, "PostgreSQL estimates"


def test_a_clone_knows_its_commit_and_a_folder_without_one_says_the_version_alone(
    settings: Any, tmp_path: Path
) -> None:
    settings.BUILD_COMMIT, settings.BASE_DIR = "", tmp_path
    build.build_text.cache_clear()
    assert build.build_text() == VERSION
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    build.build_text.cache_clear()
    assert re.fullmatch(rf"{VERSION} · [0-9a-f]{{12}} · \d{{4}}-\d\d-\d\d", build.build_text())
    build.build_text.cache_clear()
