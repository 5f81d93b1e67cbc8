"""What every list, form and question of the administration pages does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.base.core.csv_cells import safe_cell
from backendai.domain.accounts.models import Domain, Project, ResourcePolicy, User
from backendai.domain.activity.jobs import finish_job, start_job
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import Agent
from backendai.portal.web.admin.listing import PAGE_SIZE
from tests.cast import Cast
from tests.factories import make_agent, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db

Browse = Callable[[User], Client]


def test_it_exists_for_superadmins_only(cast: Cast, browse: Browse) -> None:
    assert Client().get("/manage/").headers["Location"].startswith("/login/")
    assert browse(cast.alice).get("/manage/").status_code == 404
    assert b'href="/manage/"' not in browse(cast.alice).get("/").content
    page = browse(cast.dana).get("/manage/users/")
    assert page.status_code == 200
    assert b'aria-current="page"' in page.content


def test_the_start_page_names_what_needs_attention_in_a_fixed_number_of_queries(
    cast: Cast, dana: Client, browse: Browse, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    dana.get("/manage/")
    with django_assert_num_queries(10):
        quiet = dana.get("/manage/").content.decode()
    assert "Nothing needs attention." in quiet and "Last changes" in quiet
    for number in range(3):
        make_agent(f"gone-{number}", status=Agent.Status.LOST)
    Agent.objects.filter(name="gone-1").update(notes=[{"code": "device-unhealthy", "message": "ECC"}], low_disk=True)
    job, _ = start_job("image.pull", "python", now=timezone.now()), make_session(cast.alice)
    finish_job(job.pk, failed=True, message="No space is left.", now=timezone.now())
    with django_assert_num_queries(10):
        page = dana.get("/manage/").content.decode()
    assert "Agents with notes, such as unhealthy devices" in page and "Agents with little free disk space" in page
    for told in ("Agents that do not answer", "Background jobs that failed in the last 24 hours"):
        assert told in page
    assert '<strong class="number">3</strong>' in page and "Agents being drained" not in page
    User.objects.filter(pk=cast.bob.pk).update(role="admin")
    cast.bob.refresh_from_db()
    assert browse(cast.bob).get("/manage/").headers["Location"] == "/manage/users/"


def test_a_list_is_searched_sorted_paged_and_sent_as_csv(dana: Client) -> None:
    Domain.objects.bulk_create(Domain(name=f"lab-{number:03}") for number in range(PAGE_SIZE + 10))
    first = dana.get("/manage/domains/").content.decode()
    assert first.count("<tr") == PAGE_SIZE + 1
    assert f"of {PAGE_SIZE + 12}" in first
    assert "lab-059" in dana.get("/manage/domains/?page=2").content.decode()
    down = dana.get("/manage/domains/?sort=-name").content.decode()
    assert 'aria-sort="descending"' in down
    assert down.index("lab-059") < down.index("lab-058")
    found = dana.get("/manage/domains/?q=lab-007", **HTMX).content.decode()
    assert "<html" not in found
    assert found.count("<tr") == 2
    assert "Nothing matches" in dana.get("/manage/domains/?q=nowhere").content.decode()
    answer = dana.get("/manage/domains/?q=lab-00&export=csv")
    lines = b"".join(answer.streaming_content).decode().split("\r\n")  # type: ignore[attr-defined]
    assert lines[0] == "\ufeffName,Active,People,Projects,Policy"
    assert lines[1] == "lab-000,True,0,0,"
    assert len(lines) == 12


def test_times_are_words_on_the_page_and_iso_8601_in_files(dana: Client) -> None:
    job = start_job("image.pull", "python", now=timezone.now())
    assert "just now</time>" in dana.get("/manage/jobs/").content.decode()
    lines = b"".join(dana.get("/manage/jobs/?export=csv").streaming_content).decode().split("\r\n")  # type: ignore[attr-defined]
    assert lines[1].startswith(f"{job.created_at.isoformat()},"), "no markup"


def test_people_and_projects_of_a_domain_are_counted_each_for_themselves(cast: Cast, dana: Client) -> None:
    full, empty = (Domain.objects.create(name=name) for name in ("lab-full", "lab-empty"))
    for number in range(3):
        Project.objects.create(name=f"project-{number}", domain=full)
    User.objects.filter(pk__in=(cast.alice.pk, cast.bob.pk)).update(domain=full)
    answer = dana.get("/manage/domains/?q=lab-&sort=-people&export=csv")
    lines = b"".join(answer.streaming_content).decode().split("\r\n")  # type: ignore[attr-defined]
    assert lines[1:3] == [f"{full},True,2,3,", f"{empty},True,0,0,"]


def test_a_list_asks_the_database_the_same_however_long_it_is(
    dana: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for lap in range(2):
        with django_assert_num_queries(4):  # login session, user, count, rows
            assert dana.get("/manage/domains/").status_code == 200
        Domain.objects.bulk_create(Domain(name=f"more-{lap}-{number}") for number in range(30))


def test_a_form_creates_and_changes_with_an_entry_in_the_trail(cast: Cast, dana: Client) -> None:
    sent = {"name": "physics", "is_active": "on", "share_weight": "2"}
    assert dana.post("/manage/domains/new/", sent).status_code == 302
    domain = Domain.objects.get(name="physics")
    shown = dana.get(f"/manage/domains/{domain.pk}/").context["form"]
    changed = sent | {"name": "optics", "version": shown["version"].value()}
    assert dana.post(f"/manage/domains/{domain.pk}/", changed).status_code == 302
    made, renamed = AuditEntry.objects.filter(target_type="domain").order_by("at", "pk")
    assert (made.action, made.actor) == ("domain.create", cast.dana)
    assert renamed.details == {"name": "optics", "changes": {"name": ["physics", "optics"]}}


def test_a_form_with_mistakes_writes_nothing_and_marks_the_fields(dana: Client) -> None:
    answer = dana.post("/manage/domains/new/", {"name": "default", "share_weight": "-1"})
    assert answer.status_code == 422
    assert {"name", "share_weight"} <= set(answer.context["form"].errors)
    assert b'aria-invalid="true"' in answer.content
    assert not AuditEntry.objects.filter(target_type="domain").exists()


def test_a_name_that_nobody_can_see_is_refused_at_its_field(dana: Client) -> None:
    for name in ("\N{ZERO WIDTH SPACE}", "\N{RIGHT-TO-LEFT OVERRIDE} \N{ZERO WIDTH JOINER}"):
        answer = dana.post("/manage/domains/new/", {"name": name, "share_weight": "1"})
        assert "invisible character" in answer.context["form"].errors["name"][0]
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    assert dana.post("/manage/domains/new/", {"name": family, "share_weight": "1"}).status_code == 302


def test_nobody_overwrites_unseen_what_somebody_else_changed(cast: Cast, dana: Client) -> None:
    domain = cast.alice.domain
    assert domain is not None
    address = f"/manage/domains/{domain.pk}/"
    version = dana.get(address).context["form"]["version"].value()
    Domain.objects.filter(pk=domain.pk).update(share_weight=5)
    sent = {"name": "default", "is_active": "on", "share_weight": "3", "version": version}
    answer = dana.post(address, sent)
    assert answer.status_code == 422
    assert "Share weight is now 5.0" in answer.context["form"].non_field_errors()[0]
    assert Domain.objects.get(pk=domain.pk).share_weight == 5
    again = sent | {"version": answer.context["form"]["version"].value()}
    assert dana.post(address, again).status_code == 302, "seen, and saved all the same"
    assert Domain.objects.get(pk=domain.pk).share_weight == 3


def test_what_somebody_else_changed_is_told_in_words(cast: Cast, dana: Client) -> None:
    address, policy = f"/manage/domains/{cast.alice.domain_id}/", ResourcePolicy.objects.create(name="small")
    version = dana.get(address).context["form"]["version"].value()
    Domain.objects.filter(pk=cast.alice.domain_id).update(policy=policy, is_active=False)
    answer = dana.post(address, {"name": "default", "is_active": "on", "share_weight": "1", "version": version})
    text = answer.context["form"].non_field_errors()[0]
    assert "now small" in text, "not the key of its row"
    assert "now no" in text


def test_the_trail_is_shown_without_being_counted(
    cast: Cast, dana: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(60):
        audit(cast.dana.pk, "test.action", "thing", [number], text="<script>alert(1)</script>" * 5)
    with django_assert_num_queries(3):
        page = dana.get("/manage/audit/").content.decode()
    assert "<script>alert" not in page
    assert 'rel="next"' in page
    assert "page 1" in page
    far = dana.get("/manage/audit/?page=99999999999999999999")
    assert far.status_code == 200, "no database counts so far"


@pytest.mark.parametrize(
    ("value", "cell"), [("=1+1", "'=1+1"), ("-2", "'-2"), (-2, "-2"), ("plain", "plain"), (None, ""), ("@x", "'@x")]
)
def test_a_spreadsheet_takes_no_cell_for_a_formula(value: object, cell: str) -> None:
    assert safe_cell(value) == cell


def test_an_entry_of_the_audit_log_reads_as_words_and_leads_to_all_of_its_target(cast: Cast, dana: Client) -> None:
    target = "b2778ad5-e8cc-4539-a38a-b2add388d31d"
    audit(
        cast.dana.pk,
        "thing.change",
        "thing",
        [target],
        force=False,
        count=1,
        names=["a", "b"],
        note="",
        slots={"mem": 2**30},
    )
    audit(cast.dana.pk, "thing.change", "thing", ["another"])
    page = dana.get("/manage/audit/").content.decode()
    assert f'<a href="?target_id={target}" title="{target}"><code>b2778ad5…</code></a>' in page
    details = dict(re.findall(r'<span class="audit-detail"><b>(\w+)</b> (.*?)</span>', page))
    assert {name: details[name].strip("\u2068\u2069") for name in ("force", "count", "note")} == {
        "force": "no",
        "count": "1",
        "note": "–",
    }
    assert "{" not in details["names"]
    assert details["slots"] == "1\u00a0GiB"
    found = dana.get(f"/manage/audit/?target_id={target}").content.decode()
    assert "another" not in found
    assert '<details class="panel-filter-rare" open>' in found, "a filter that is set is not folded"
