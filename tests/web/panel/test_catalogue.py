"""The administration pages of images, presets and background jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.wire.images import PULL
from backendai.base.wire.messages import ImageSighting
from backendai.base.wire.node_jobs import JobState, NodeJobReport
from backendai.domain.accounts.models import User
from backendai.domain.activity import jobs
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import Image, ImagePull, Registry, ResourcePreset
from backendai.domain.catalog.pulls import pull_heard
from backendai.domain.catalog.registries import start_scan
from backendai.domain.catalog.services import record_images
from backendai.domain.cluster.models import Agent
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
PRESETS, IMAGES, JOBS = "/manage/presets/", "/manage/images/", "/manage/jobs/"


def text_of(answer: Any) -> str:
    return re.sub("[\u2068\u2069]", "", " ".join(re.sub(r"<[^>]+>", " ", markup(answer)).split()))


def shown(client: Client, path: str) -> dict[str, Any]:
    """What the form at this address would send as it is."""
    form = client.get(path).context["form"]
    values = {bound.name: bound.value() for bound in form}
    return {name: value for name, value in values.items() if value not in (None, False, "")}


def test_a_preset_is_made_changed_and_deleted(dana: Client) -> None:
    group = make_group()
    assert '<option value="" selected>all groups</option>' in markup(dana.get(f"{PRESETS}new/"))
    sent = {"name": "gpu", "slots": "cpu=4, mem=16g", "rank": "1", "shm_bytes": "1g"}
    assert dana.post(f"{PRESETS}new/", sent | {"resource_group": group.pk}).status_code == 302
    preset = ResourcePreset.objects.get()
    page = markup(dana.get(PRESETS)).replace("\N{NO-BREAK SPACE}", " ")
    assert "4 CPU · 16 GiB" in page and "1 GiB" in page
    path = f"{PRESETS}{preset.pk}/"
    wrong = dana.post(path, shown(dana, path) | {"shm_bytes": str(2**40), "slots": "cpu=4, mem=16g"})
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (422, ["shm_bytes"])
    assert 'value="1g"' in markup(dana.get(path))
    words = dana.post(path, shown(dana, path) | {"shm_bytes": "much", "slots": "cpu=4, mem=16g"})
    assert (words.status_code, list(words.context["form"].errors)) == (422, ["shm_bytes"])
    bare = dana.post(path, shown(dana, path) | {"shm_bytes": "64", "slots": "cpu=4, mem=16"})
    assert list(bare.context["form"].errors) == ["slots", "shm_bytes"]
    assert "16 without a unit means bytes. Write 16g or 16m." in bare.context["form"].errors["slots"][0]
    assert dana.post(path, shown(dana, path) | {"slots": "cpu=2, mem=16g"}).status_code == 302
    preset.refresh_from_db()
    assert preset.slots["cpu"] == "2"
    assert AuditEntry.objects.get(action="preset.change").details["changes"].keys() == {"slots"}
    assert dana.post(f"{path}delete/").status_code == 302
    assert not ResourcePreset.objects.exists()


def test_a_preset_that_no_agent_can_hold_is_saved_with_a_warning_and_listed_as_such(
    dana: Client, django_assert_num_queries: Any
) -> None:
    lab = make_group("lab")
    make_agent("small", cpu=2, mem="4g")
    make_agent("large", cpu=8, mem="32g", group=lab)
    make_agent("gone", cpu=99, mem="999g", status=Agent.Status.TERMINATED)
    said = {}
    for name, cpu, group in (
        ("fits", "2", ""),
        ("lab-only", "8", ""),
        ("too-large", "64", ""),
        ("wrong", "64", lab.pk),
    ):
        body = {"name": name, "slots": f"cpu={cpu}, mem=1g", "rank": "0", "resource_group": group}
        said[name] = text_of(dana.post(f"{PRESETS}new/", body, follow=True))
    assert "can hold this preset" not in said["fits"] + said["lab-only"]
    assert "No agent can hold this preset, even when empty." in said["too-large"]
    assert "No agent of resource group lab can hold this preset" in said["wrong"]
    with django_assert_num_queries(7):  # who asks, groups, the number, the page, slot types, the agents: once each
        table = dana.get(PRESETS).context["table"]
    cells = {row.record.name: str(row.get_cell("fits")) for row in table.rows}
    assert (cells["fits"], cells["lab-only"]) == ("2 agents", "1 agent")
    assert all("no agent" in cells[name] for name in ("too-large", "wrong"))


def test_what_is_wrong_with_a_preset_is_said_once_at_its_field(dana: Client) -> None:
    new, group = f"{PRESETS}new/", make_group()
    sent = {"name": "gpu", "slots": "cpu=4, mem=16g", "rank": "1"}
    for where, words in (({"resource_group": group.pk}, "resource group default"), ({}, "all groups")):
        dana.post(new, sent | where)
        twice = dana.post(new, sent | where)
        assert twice.context["form"].errors == {"name": [f"A preset 'gpu' for {words} already exists."]}
    long = dana.post(new, sent | {"name": "x" * 70, "slots": "cpu=much"})
    assert {name: len(texts) for name, texts in long.context["form"].errors.items()} == {"name": 1, "slots": 1}
    assert "70" in long.context["form"].errors["name"][0]
    typo = dana.post(new, sent | {"name": "typo", "slots": "cpus=2, mem=1g"})
    (said,) = typo.context["form"].errors["slots"]
    assert said.startswith("Unknown slot cpus. Known: cpu,") and said.endswith("Did you mean cpu?")


def test_an_image_is_put_on_agents_and_the_page_shows_how_far_each_is(
    cast: Cast, dana: Client, django_assert_num_queries: Any
) -> None:
    image, here, there = make_image("torch"), make_agent("here"), make_agent("there")
    record_images(here, [ImageSighting(reference=image.reference)], "d1")
    make_agent("native", backend="process")
    path = f"{IMAGES}{image.pk}/agents/"
    assert path in markup(dana.get(f"{IMAGES}{image.pk}/"))
    page = markup(dana.get(path))
    assert "here · default · present" in page and "there · default · not present" in page
    assert "native ·" not in page and "Last pull" not in page
    assert dana.post(path).status_code == 422, "nothing was chosen"
    assert dana.post(path, {"agents": [here.pk, there.pk]}).status_code == 302
    assert "is already running" in markup(dana.post(path, {"agents": [here.pk]}))
    for pull in ImagePull.objects.select_related("agent"):
        word = NodeJobReport(kind=PULL, job_id=pull.pk, state=JobState.RUNNING, message="5 of 10 MiB", progress=0.5)
        pull_heard(pull.agent, word, now=timezone.now())
    page = markup(dana.get(path))
    assert page.count("5 of 10 MiB") == 2 and 'value="50"' in page and 'hx-trigger="every 2s"' in page
    with django_assert_num_queries(5):
        part = markup(dana.get(path, headers={"HX-Request": "true"}))
    assert "<html" not in part and "5 of 10 MiB" in part
    assert "torch" in markup(dana.get("/notifications/")), "the bell shows it to anyone who asked for it"
    for pull in ImagePull.objects.select_related("agent"):
        pull_heard(pull.agent, NodeJobReport(kind=PULL, job_id=pull.pk, state=JobState.DONE), now=timezone.now())
    assert "every 2s" not in markup(dana.get(path))


def test_an_image_is_made_changed_and_forgotten(cast: Cast, dana: Client) -> None:
    sent = {
        "name": "torch",
        "reference": "cr.example.org/lab/torch:2",
        "alias_names": "pt  pytorch",
        "is_enabled": "on",
    }
    assert dana.post(f"{IMAGES}new/", sent | {"reference": "No Image"}).status_code == 422
    assert dana.post(f"{IMAGES}new/", sent).status_code == 302
    image = Image.objects.get()
    path = f"{IMAGES}{image.pk}/"
    wrong = dana.post(path, shown(dana, path) | {"alias_names": "a,b", "maximum": "", "minimum": ""})
    assert list(wrong.context["form"].errors) == ["alias_names"]
    for digest, status in (("sha256:zz", 422), ("latest", 422), ("sha256:" + 64 * "a", 302)):
        assert dana.post(path, shown(dana, path) | {"digest": digest}).status_code == status
    typed = shown(dana, path) | {"alias_names": "pt", "maximum": "cpu=8", "minimum": "cpu=1"}
    assert dana.post(path, typed | {"minimum": "cpu=9"}).status_code == 422
    assert dana.post(path, typed | {"domains": [cast.elsewhere.domain.pk]}).status_code == 302
    image.refresh_from_db()
    assert (image.maximum, [alias.name for alias in image.aliases.all()]) == ({"cpu": "8"}, ["pt"])
    assert [domain.name for domain in image.domains.all()] == ["elsewhere"]
    assert dana.post(f"{path}forget/").status_code == 302
    make_session(cast.alice)
    used = f"{IMAGES}{Image.objects.get().pk}/forget/"
    asked = markup(dana.get(used))
    assert "1 compute session" in asked
    assert "disable it instead" in asked
    assert 'class="btn btn-danger"' not in asked, "nothing is offered that would be refused"
    assert dana.post(used).status_code == 422


def test_images_are_counted_on_agents_and_filtered_in_a_fixed_number_of_queries(
    dana: Client, django_assert_num_queries: Callable[..., Any]
) -> None:
    make_image("off", is_enabled=False)
    for lap in range(2):
        for number in range(3):
            image = make_image(f"i-{lap}-{number}")
            seen = [ImageSighting(reference=image.reference, size_bytes=3 * 2**30)]
            record_images(make_agent(), seen, "d")
            record_images(make_agent(), seen, "d")
        with django_assert_num_queries(6):  # 2 for who asks, architectures, images built here, count, rows
            page = dana.get(IMAGES)
        rows = {row.record.name: row.record for row in page.context["table"].rows}
        assert (rows["i-0-0"].agents, rows["i-0-0"].size, rows["off"].agents) == (2, 3 * 2**30, 0)
    assert len(dana.get(f"{IMAGES}?on_agents=none").context["table"].rows) == 1
    assert len(dana.get(f"{IMAGES}?is_enabled=false").context["table"].rows) == 1
    assert len(dana.get(f"{IMAGES}?q=i-0").context["table"].rows) == 3


def test_what_agents_have_comes_into_the_catalogue_disabled(dana: Client) -> None:
    ours = {"ai.backend.kernelspec": "1", "ai.backend.resource.min.cpu": "2"}
    seen = [
        ImageSighting(reference="cr.example.org/lab/new:1", labels=ours),
        ImageSighting(reference="cr.example.org/other/new:1", labels=ours),
        ImageSighting(reference="local/foreign:1", labels={"a": "b"}),
        ImageSighting(reference="cr.example.org/lab/new@sha256:" + "ab" * 32, labels=ours),
    ]
    record_images(make_agent(), seen, "d")
    assert dana.post(f"{IMAGES}from-agents/").status_code == 302
    assert dana.post(f"{IMAGES}from-agents/").status_code == 302
    found = {image.name: image for image in Image.objects.all()}
    assert set(found) == {"new:1", "other/new:1"}
    assert not found["new:1"].is_enabled and found["new:1"].minimum == {"cpu": "2"}


def test_jobs_of_everybody_are_listed_and_cancelled(
    cast: Cast, dana: Client, django_assert_num_queries: Callable[..., Any]
) -> None:
    job = jobs.start_job("registry.scan", "lab", now=timezone.now(), owner_id=cast.alice.pk, total=4, unit="images")
    over = jobs.start_job("image.build", "base", now=timezone.now())
    jobs.finish_job(over.pk, message="It broke.", fix="Mend it.", now=timezone.now(), failed=True)
    with django_assert_num_queries(4):
        page = markup(dana.get(JOBS))
    assert "Scanning registry lab" in page and "alice@example.com" in page and "It broke. Mend it." in page
    assert page.count("Cancel…") == 1
    assert dana.post(f"{JOBS}{job.pk}/cancel/").status_code == 302
    assert "being cancelled" in markup(dana.get(JOBS))
    assert dana.post(f"{JOBS}{over.pk}/cancel/").status_code == 422


def test_a_registry_is_made_looked_through_and_its_password_never_shown(cast: Cast, dana: Client) -> None:
    sent = {"name": "lab", "url": "https://cr.example.org", "kind": "docker", "is_enabled": "on", "is_global": "on"}
    assert dana.post("/manage/registries/new/", sent | {"url": "https://cr.example.org/path"}).status_code == 422
    assert dana.post("/manage/registries/new/", sent | {"username": "r", "new_password": "s3cret"}).status_code == 302
    registry = Registry.objects.get()
    path = f"/manage/registries/{registry.pk}/"
    assert registry.password == "s3cret" and "s3cret" not in markup(dana.get(path))
    assert dana.post(path, shown(dana, path) | {"projects": "lab"}).status_code == 302
    assert Registry.objects.get().password == "s3cret", "left empty, it stays"
    pushing = {"push_username": "writer", "new_push_password": "may write"}
    assert dana.post(path, shown(dana, path) | pushing).status_code == 302
    assert (Registry.objects.get().push_password, Registry.objects.get().password) == ("may write", "s3cret")
    assert "may write" not in markup(dana.get(path))
    answer = dana.post(f"{path}scan/", follow=True)
    assert "is being scanned" in markup(answer)
    assert "is already running" in markup(dana.post(f"{path}scan/", follow=True))
    assert dana.post(path, shown(dana, path) | {"clear_password": "on"}).status_code == 302
    assert Registry.objects.get().password == ""
    assert dana.post(f"{path}delete/").status_code == 302


def test_an_image_that_is_disabled_says_who_still_uses_it(cast: Cast, dana: Client) -> None:
    make_running_session(cast.alice, make_agent("node-1"))
    for _ in range(2):
        make_session(cast.alice)
    path = f"{IMAGES}{Image.objects.get().pk}/"
    body = {name: value for name, value in shown(dana, path).items() if name != "is_enabled"}
    body |= {"minimum": "cpu=0.1, mem=64m", "maximum": ""}
    said = text_of(dana.post(path, body, follow=True))
    assert not Image.objects.get().is_enabled
    assert "1 session uses it and continues." in said
    assert "2 sessions wait for it and will still start." in said


def test_the_list_of_registries_says_how_the_last_scan_ended(cast: Cast, dana: Client) -> None:
    registry = Registry.objects.create(name="far", url="https://registry.example")
    now = timezone.now()
    for message in ("an older fault", "registry.example on port 443 cannot be reached: it did not answer in time"):
        job = start_scan(cast.dana, registry, now=now)
        jobs.finish_job(job.pk, message=message, now=now, failed=True)
        now += timedelta(seconds=1)
    page = text_of(dana.get("/manage/registries/"))
    assert "cannot be reached: it did not answer in time" in page
    assert "an older fault" not in page
