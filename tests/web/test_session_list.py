"""The list of sessions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Preference, User
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.status import LIVE, TERMINAL, Status
from backendai.domain.usage.models import UsageSample
from backendai.portal.web.session_list.columns import COLUMNS
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HOME = "/"
SORTING = [column.name for column in COLUMNS if column.sort]


def names(client: Client, **query: Any) -> list[str]:
    return [each.name for each in client.get(HOME, query).context["page"]]


def test_it_lists_ones_own_sessions_and_nobody_elses(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="mine")
    make_session(cast.bob, name="not-mine")
    page = markup(browse(cast.alice).get(HOME))
    assert "mine</bdi></a>" in page
    assert "not-mine" not in page
    assert "whose=mine" not in page, "the switch is for those who see others' sessions"


def test_a_superadmin_sees_everybodys_sessions_with_their_owners_or_theirs_alone(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="hers")
    make_session(cast.dana, name="danas")
    dana = browse(cast.dana)
    page = markup(dana.get(HOME))
    assert "hers</bdi></a>" in page
    assert "alice@example.com" in page
    assert ">Everybody&#x27;s</a>" in page or ">Everybody's</a>" in page
    answer = dana.get(HOME, {"whose": "mine"})
    assert [each.name for each in answer.context["page"]] == ["danas"]
    assert answer.context["numbers"].all_live == 1


def test_it_asks_the_database_as_often_for_many_sessions_as_for_one(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client, agent = browse(cast.dana), make_agent(cpu=64, mem="64g")
    Preference.objects.create(user=cast.dana, name="session-list.columns", value=["agent", "project", "owner", "key"])
    make_running_session(cast.alice, agent)
    # 2 for who asks, 1 for the columns, 2 count, 1 for groups to filter by, 3 for the page, 1 for what is used, 1 for
    # builds, 4 for the resources, 1 for slot types
    with django_assert_num_queries(18):
        client.get(HOME)
    for number in range(6):
        make_running_session(cast.alice, agent, name=f"more-{number}", cluster_size=2)
    with django_assert_num_queries(18):
        client.get(HOME, {"sort": "agent"})
    with django_assert_num_queries(5):  # 2 for who asks, 1 for groups, 2 for the file
        assert len(list(client.get(HOME, {"export": "csv"}))) == 8


@pytest.mark.parametrize("kind", ["interactive", "batch"])
def test_a_row_has_read_all_that_it_shows_whatever_goes_on(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any], kind: str
) -> None:
    client, all_columns = browse(cast.dana), [column.name for column in COLUMNS]
    Preference.objects.create(user=cast.dana, name="session-list.columns", value=all_columns)
    make_image(labels={"ai.backend.service-ports": "jupyter:http:8080"})
    for status in Status:
        model = make_session(cast.alice, name=f"it-is-{status.lower()}")
        ComputeSession.objects.filter(pk=model.pk).update(
            status=status, session_type=kind, retries=1, queue_position=3, status_data={"percent": 7}, result="FAILED",
            starts_at=timezone.now(), started_at=timezone.now(), ended_at=timezone.now(), status_reason="start-failed",
        )  # fmt: skip
    for view, number in (("", len(LIVE)), ("finished", len(TERMINAL))):
        with django_assert_num_queries(17 if view else 18):  # what is used is asked of those that run
            page = client.get(HOME, {"view": view})
        assert len(page.context["page"]) == number
        assert markup(page).count("alice@example.com</bdi></td>") == number
    row = ComputeSession.objects.get(name="it-is-running")
    # 2 for who asks, 1 for the columns, 1 whether it is there, 2 for the row, 1 for what is used, 1 for slot types
    with django_assert_num_queries(8):
        client.get(reverse("web:session_row", args=[row.pk]))


def test_it_moves_ended_sessions_to_the_other_side_and_counts_live_ones_by_type(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="waits")
    make_session(cast.alice, name="batch-job", session_type="batch", startup_command="true")
    terminate_session(make_session(cast.alice, name="gone"), cast.alice)
    client = browse(cast.alice)
    answer = client.get(HOME)
    assert (answer.context["numbers"].all_live, answer.context["numbers"].ended) == (2, 1)
    assert [(tab.kind, tab.number) for tab in answer.context["tabs"]] == [("", 2), ("interactive", 1), ("batch", 1)]
    assert names(client) == ["batch-job", "waits"]
    assert names(client, type="batch") == ["batch-job"]
    assert names(client, view="finished") == ["gone"]
    assert names(client, view="finished", type="batch") == []
    assert names(client, type="nonsense") == ["batch-job", "waits"]


def test_it_finds_sessions_by_every_word_typed(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="train-bert")
    make_session(cast.alice, name="train-resnet")
    client = browse(cast.alice)
    answer = client.get(HOME, {"q": "TRAIN bert", "status": "", "page": "7"}, **HTMX, HTTP_HX_TRIGGER="q")
    page = markup(answer)
    assert "train-bert" in page
    assert "train-resnet" not in page
    assert "<html" not in page
    assert answer["HX-Replace-Url"] == "/?q=TRAIN+bert&page=7"
    assert "HX-Replace-Url" not in client.get(HOME, **HTMX, HTTP_HX_TRIGGER="session-list"), (
        "it was asked to look again"
    )


def test_it_is_narrowed_by_properties_each_with_a_chip_that_takes_it_away(cast: Cast, browse: Browse) -> None:
    make_group("lab")
    agent = make_agent("gpu-01")
    make_running_session(cast.alice, agent, name="runs")
    make_session(cast.alice, name="waits")
    make_session(cast.bob, name="elsewhere", resource_group="lab")
    dana = browse(cast.dana)
    assert names(dana, status="RUNNING") == ["runs"]
    assert names(dana, status=["RUNNING", "PENDING"], group="default") == ["waits", "runs"]
    assert names(dana, group="lab") == ["elsewhere"]
    assert names(dana, agent="gpu-01") == ["runs"]
    assert names(dana, owner="bob@") == ["elsewhere"]
    assert names(dana, project="vision", domain="default", owner="alice") == ["waits", "runs"]
    assert names(dana, domain="elsewhere") == []
    assert names(dana, id=str(ComputeSession.objects.get(name="waits").pk)) == ["waits"]
    answer = dana.get(HOME, {"status": ["RUNNING", "PENDING"], "group": "lab", "page": "1", "sort": "name"})
    chips = [(str(chip.label), chip.value, chip.address) for chip in answer.context["chips"]]
    assert chips == [
        ("Status", "Running", "?status=PENDING&group=lab&sort=name"),
        ("Status", "Pending", "?status=RUNNING&group=lab&sort=name"),
        ("Resource group", "lab", "?status=RUNNING&status=PENDING&sort=name"),
    ]
    assert answer.context["links"]["reset"] == "?"
    assert names(dana, status="NONSENSE", group="nowhere", id="x") == ["elsewhere", "waits", "runs"]


def test_it_offers_to_each_person_only_the_properties_that_are_their_business(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent("gpu-01"), name="runs")
    client = browse(cast.alice)
    answer = client.get(HOME, {"agent": "other", "owner": "bob", "project": "none"})
    assert [each.name for each in answer.context["page"]] == ["runs"], "what is not offered is passed over"
    assert set(answer.context["filter"].filters) == {"status", "group", "label"}
    assert "agent" not in {column.name for column in answer.context["columns_offered"]}
    change_site(cast.dana, {"agent_select": True}, now=timezone.now())
    assert "agent" in {column.name for column in client.get(HOME).context["columns_offered"]}
    assert names(client, agent="other") == []


def test_it_is_sorted_by_a_heading_and_in_pages_of_a_chosen_size(cast: Cast, browse: Browse) -> None:
    for number, name in enumerate(("bbbb", "aaaa", "dddd", "cccc")):
        session = make_session(cast.alice, name=name, cluster_size=1 + number % 2)
        ComputeSession.objects.filter(pk=session.pk).update(priority=number)
    client = browse(cast.alice)
    Preference.objects.create(user=cast.alice, name="session-list.columns", value=["priority", "cluster"])
    assert names(client, sort="name") == ["aaaa", "bbbb", "cccc", "dddd"]
    assert names(client, sort="-priority") == ["cccc", "dddd", "aaaa", "bbbb"]
    assert names(client, sort="cluster") == ["dddd", "bbbb", "cccc", "aaaa"], "alike ones the newest first"
    assert names(client, sort="age") == ["bbbb", "aaaa", "dddd", "cccc"]
    assert names(client, sort="nonsense") == ["cccc", "dddd", "aaaa", "bbbb"]
    for number in range(8):
        make_session(cast.alice, name=f"eee-{number}")
    answer = client.get(HOME, {"sort": "name", "size": "10", "page": "2"})
    assert [each.name for each in answer.context["page"]] == ["eee-6", "eee-7"]
    assert answer.context["links"]["newer"] == "?sort=name&size=10&page=1"
    page = markup(answer)
    assert '<th scope="col" aria-sort="ascending"><a class="sorts" href="?sort=-name&amp;size=10">Session</a>' in page


def test_columns_are_chosen_by_each_person_without_a_script(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent("gpu-01"), name="runs")
    client = browse(cast.alice)
    assert 'data-label="Priority"' not in markup(client.get(HOME))
    form = {"column": ["priority", "key", "agent", "nonsense"], "back": "?view=finished&size=10&evil=//x"}
    answer = client.post(reverse("web:session_columns"), form)
    assert answer["Location"] == "/?view=finished&size=10"
    page = markup(client.get(HOME))
    assert 'data-label="Priority"' in page
    assert ComputeSession.objects.get().access_key in page
    assert "gpu-01" not in page, "agents are not this person's business"
    assert 'data-label="Priority"' in markup(
        client.get(reverse("web:session_row", args=[ComputeSession.objects.get().pk]))
    )
    assert 'data-label="Priority"' not in markup(browse(cast.dana).get(HOME))
    client.post(reverse("web:session_columns"), {})
    assert not Preference.objects.exists()


def test_columns_stand_in_the_order_that_each_person_gives_them(cast: Cast, browse: Browse) -> None:
    make_session(cast.alice, name="waits")
    client, choose = browse(cast.alice), reverse("web:session_columns")

    def order() -> list[str]:
        answer = client.get(HOME)
        offered = [column.name for column in answer.context["columns_offered"]]
        assert sorted(offered) == sorted(set(offered)), "each is offered once"
        assert re.findall('data-label="([A-Z a-z]+)"', markup(answer)) == [
            str(column.label) for column in answer.context["columns"]
        ]
        assert offered[:3] == [column.name for column in answer.context["columns"]]
        return offered[:3]

    client.post(choose, {"column": ["priority", "type", "key"]})
    assert order() == ["priority", "type", "key"]
    client.post(choose, {"column": order(), "earlier": "key"})
    assert order() == ["priority", "key", "type"]
    client.post(choose, {"column": order(), "earlier": "priority", "later": "nonsense"})
    assert order() == ["priority", "key", "type"], "there is nothing before the first"
    client.post(choose, {"column": order(), "later": "priority"})
    assert order() == ["key", "priority", "type"]
    client.post(choose, {"column": order(), "later": "type"})
    assert order() == ["key", "priority", "type"], "there is nothing after the last"


def test_what_ended_last_is_the_first_of_what_has_ended_on_the_page_and_in_the_file(cast: Cast, browse: Browse) -> None:
    for name in ("aaaa", "cccc", "bbbb"):
        make_session(cast.alice, name=name)
    for name in ("cccc", "bbbb", "aaaa"):
        terminate_session(ComputeSession.objects.get(name=name), cast.alice)
    client = browse(cast.alice)
    Preference.objects.create(user=cast.alice, name="session-list.columns", value=["created"])
    assert names(client, view="finished") == ["aaaa", "bbbb", "cccc"]
    assert names(client, view="finished", sort="age") == ["cccc", "bbbb", "aaaa"]
    assert names(client, view="finished", sort="-created") == ["bbbb", "cccc", "aaaa"]
    answer = client.get(HOME, {"view": "finished", "export": "csv"})
    rows = csv.DictReader(io.StringIO(b"".join(answer).decode("utf-8-sig")))
    assert [row["name"] for row in rows] == ["aaaa", "bbbb", "cccc"]
    page = markup(client.get(HOME, {"view": "finished"}))
    assert (
        '<th scope="col" aria-sort="descending"><a class="sorts" href="?view=finished&amp;sort=age">Ended</a>' in page
    )


def test_what_has_ended_is_sorted_among_those_that_ended_last(
    cast: Cast, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.portal.web.session_list.pages.MOST_SORTED", 2)
    monkeypatch.setattr("backendai.portal.web.session_list.changes.MOST_SORTED", 2)
    for name in ("cccc", "bbbb", "aaaa"):
        make_session(cast.alice, name=name)
    for name in ("aaaa", "cccc", "bbbb"):
        terminate_session(ComputeSession.objects.get(name=name), cast.alice)
    client = browse(cast.alice)
    by_name, searched = {"view": "finished", "sort": "name"}, {"view": "finished", "sort": "created", "q": "alice"}
    assert names(client, **by_name) == ["bbbb", "cccc"]
    assert "Sorting covers the 2 most recently ended sessions." in markup(client.get(HOME, by_name))
    assert names(client, view="finished") == ["bbbb", "cccc", "aaaa"]
    assert names(client, view="finished", sort="created") == ["cccc", "bbbb", "aaaa"]
    assert names(client, **searched) == ["cccc", "bbbb"], "a search reads no row of those before"
    assert names(client, **searched | {"sort": "-age"}) == ["bbbb", "cccc", "aaaa"]


@pytest.mark.parametrize("sorting", [SORTING[:2], pytest.param(SORTING[2:], marks=pytest.mark.ci)])
def test_every_column_sorts_what_has_ended_as_its_file_does(cast: Cast, browse: Browse, sorting: list[str]) -> None:
    agents = [make_agent(f"gpu-{number}") for number in range(3)]
    for number in range(11):  # more than a page: in each, the rows are put in order once more
        owner = cast.bob if number % 4 == 1 else cast.alice
        ended = make_running_session(owner, agents[number % 3], name=f"ended-{number:02}")
        ComputeSession.objects.filter(pk=ended.pk).update(
            status="TERMINATED", ended_at=timezone.now(), priority=99 - number, cluster_size=1 + number % 2
        )
    terminate_session(
        make_session(cast.bob, name="never-placed", session_type="batch", startup_command="true"), cast.bob
    )
    client = browse(cast.dana)
    for sort in ("name", *sorting, *(f"-{name}" for name in sorting)):
        asked = {"view": "finished", "sort": sort, "size": 10}
        answer = client.get(HOME, asked | {"export": "csv"})
        lines = list(csv.DictReader(b"".join(answer.streaming_content).decode("utf-8-sig").splitlines()))
        assert names(client, **asked) + names(client, **asked, page=2) == [line["name"] for line in lines], sort
        assert len(lines) == 12
    assert names(client, view="finished", sort="agent", q="nobody") == []


def test_its_file_has_what_the_filter_shows_and_no_formulas(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent("gpu-01"), name="runs")
    make_session(cast.bob, name="bobs")
    waiting = make_session(cast.alice, name="waits")
    ComputeSession.objects.filter(pk=waiting.pk).update(status_message="=cmd|' /C calc'!A0")
    answer = browse(cast.alice).get(HOME, {"export": "csv", "sort": "name"})
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode("utf-8-sig"))))
    assert [(row["name"], row["status"], row["owner"]) for row in rows] == [
        ("runs", "RUNNING", "alice@example.com"),
        ("waits", "PENDING", "alice@example.com"),
    ]
    assert rows[1]["status_message"].startswith("'=")
    assert "agents" not in rows[0]
    answer = browse(cast.dana).get(HOME, {"export": "csv", "agent": "gpu-01"})
    assert [row["agents"] for row in csv.DictReader(io.StringIO(b"".join(answer).decode("utf-8-sig")))] == ["gpu-01"]


def test_each_row_leads_to_what_can_be_done_with_the_session(cast: Cast, browse: Browse) -> None:
    make_image("apps", labels={"ai.backend.service-ports": "notes:http:8080"})
    running = make_running_session(cast.alice, name="runs", image="apps")
    waiting = make_session(cast.alice, name="waits")
    client = browse(cast.alice)
    rows = {one: markup(client.get(reverse("web:session_row", args=[one.pk]))) for one in (running, waiting)}
    assert reverse("web:app_launcher", args=[running.pk]) in rows[running] and 'title="Apps" data-box' in rows[running]
    for part in ("#terminal", "#log"):
        assert f"{reverse('web:session', args=[running.pk])}{part}" in rows[running]
        assert part not in rows[waiting]
    assert reverse("web:terminate", args=[waiting.pk]) in rows[waiting] and 'data-box="terminate"' in rows[waiting]
    assert "Launch again" not in rows[waiting]
    terminate_session(waiting, cast.alice)
    assert f"?like={waiting.pk}" in markup(client.get(reverse("web:session_row", args=[waiting.pk])))
    assert reverse("web:terminate", args=[waiting.pk]) not in markup(
        client.get(reverse("web:session_row", args=[waiting.pk]))
    )


def test_it_says_why_a_session_waits_and_its_place_in_the_queue(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    wait = Waiting(session.pk, "no-room", "cpu: 8 asked, 2 available.", position=3)
    note_waits([wait], now=timezone.now())
    row = markup(browse(cast.alice).get(reverse("web:session_row", args=[session.pk])))
    assert "cpu: 8 asked, 2 available." in row
    assert "position 3 in the queue" in row
    assert row.strip().startswith("<tr")


@some(
    "hostile",
    ["<img src=x onerror=alert(1)>\"'{{ 7|add:7 }}", "<script>alert(1)</script>", "\u202egnp.exe", "🦄" * 64],
    2,
)
def test_it_shows_a_hostile_name_as_text(cast: Cast, browse: Browse, hostile: str) -> None:
    session = make_session(cast.alice)
    ComputeSession.objects.filter(pk=session.pk).update(name=hostile, status_message=hostile)
    client = browse(cast.alice)
    shown = hostile.translate(str.maketrans({"<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}))
    for address in (HOME, reverse("web:session", args=[session.pk])):
        page = markup(client.get(address))
        assert f"<bdi>{shown}</bdi>" in page
        assert "<img src=x" not in page
        assert "<script>alert" not in page
    page = markup(client.get(HOME, {"q": f'">{hostile}', "group": hostile, "sort": hostile}))
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_it_hides_foreign_rows(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    assert browse(cast.charlie).get(reverse("web:session_row", args=[session.pk])).status_code == 404


def test_it_explains_an_empty_list(cast: Cast, browse: Browse) -> None:
    page = markup(browse(cast.alice).get(HOME))
    assert "Start your first session" in page
    assert "No agent accepts sessions now" in page or "No resource group" in page


def test_it_shows_the_build_that_the_first_session_waits_for(cast: Cast, browse: Browse) -> None:
    make_image(is_built_here=True)
    job = BackgroundJob(kind=BUILD_JOB, subject="local/python:latest", progress=0.41, message="Unpacking.")
    job.save()
    client = browse(cast.alice)
    page = markup(client.get(HOME))
    assert 'is being built: <span class="number">41 %</span>' in page
    assert 'hx-trigger="every 4s"' in page
    job.status = BackgroundJob.Status.DONE
    job.save()
    page = markup(client.get(HOME))
    assert "is being built" not in page
    assert 'hx-trigger="every 4s"' not in page


def test_it_shows_what_is_free_in_each_group(cast: Cast, browse: Browse) -> None:
    make_running_session(cast.alice, make_agent(cpu=4, mem="8g"), resources={"cpu": 1, "mem": "2g"})
    rooms = browse(cast.bob).get(reverse("web:resources_panel")).context["rooms"]
    bars = {bar.slot: (bar.free_text, bar.total_text, bar.percent) for bar in rooms[0].bars}
    assert bars == {"cpu": ("3", "4", 25), "mem": ("6 GiB", "8 GiB", 25)}


def test_a_running_row_shows_what_it_uses_of_what_it_has(cast: Cast, browse: Browse) -> None:
    client, now = browse(cast.alice), timezone.now()
    wish = {"cpu": "2", "mem": "1g", "cuda.device": "1"}
    agent = make_agent(capacity={"cpu": "8", "mem": str(2**33), "cuda.device": "2"})
    session = make_running_session(cast.alice, agent, name="busy", resources=wish, cluster_size=2)
    waiting = make_session(cast.alice, name="waits")
    address = reverse("web:sessions_usage")
    page = markup(client.get(HOME))
    assert f'id="use-{session.pk}"' in page and f'id="use-{waiting.pk}"' not in page
    assert "Usage: not measured yet" in page and "<meter" not in page.partition('id="use-')[2].partition("</tr>")[0]
    for kernel, cpu in zip(session.kernels.order_by("rank"), (1.5, 0.5), strict=True):
        devices = {"cuda.device": {"util": cpu / 2}}
        UsageSample.objects.create(kernel=kernel, at=now, seconds=5, cpu=cpu, mem_bytes=2**28, devices=devices)
    row = markup(client.get(reverse("web:session_row", args=[session.pk])))
    assert 'aria-label="CPU: 2 of 4 used"' in row and 'value="50"' in row
    assert "512 MiB of 2 GiB used" in row and 'value="25"' in row
    assert ">GPU<" in row and "1 of 2 used" in row
    asked = {"session": [session.pk, waiting.pk, "nonsense"]}
    assert markup(client.get(address, asked)).count("hx-swap-oob") == 1
    assert browse(cast.charlie).get(address, asked).content.strip() == b"", "nobody else's business"
    UsageSample.objects.update(at=now - timedelta(minutes=3))
    assert "not measured yet" in markup(client.get(reverse("web:session_row", args=[session.pk])))


def test_a_batch_session_that_failed_says_so_in_one_badge(cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice, session_type="batch", startup_command="false")
    ComputeSession.objects.filter(pk=session.pk).update(status="TERMINATED", result="FAILED", ended_at=timezone.now())
    page = markup(browse(cast.alice).get(HOME, {"view": "finished"}))
    row = page.partition("<tbody>")[2]
    assert ">Failed<" in row and ">Terminated<" not in row
