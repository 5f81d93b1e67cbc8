"""An administrator switches strategies in the admin, and the next pass follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.groups.rules import strategies
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.portal.loops.loops import schedule_group
from backendai.scheduler.options import Option
from backendai.scheduler.sequences import SEQUENCES
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def dana(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.dana)
    return client


def path_of(group: ResourceGroup) -> str:
    return reverse("admin:cluster_resourcegroup_change", args=[group.pk])


def form_of(client: Client, group: ResourceGroup, **over: Any) -> dict[str, Any]:
    """Return what a browser would send from the page, with these fields changed."""
    form = client.get(path_of(group)).context["adminform"].form
    values = {}
    for name in form.fields:
        value = form[name].value()
        if value is True:
            values[name] = "on"
        elif value is not None and value is not False:
            values[name] = value
    return {name: value for name, value in (values | over).items() if value is not None}


def save(client: Client, group: ResourceGroup, **over: Any) -> Any:
    return client.post(path_of(group), form_of(client, group, **over))


def test_the_page_offers_what_the_scheduler_knows(dana: Client) -> None:
    form = dana.get(path_of(make_group())).context["adminform"].form
    for level in ("sequence", "selection"):
        assert [name for name, _ in form.fields[level].choices] == list(strategies(level))
    page = dana.get(path_of(make_group())).content.decode()
    for heading in ("Queue", "Agents", "Queue limits", "Start and termination timeouts"):
        assert heading in page
    assert "fifo: first in, first out" in page


def test_switching_the_sequence_changes_who_starts_next(dana: Client, cast: Cast) -> None:
    group = make_group()
    make_agent(cpu=1, mem="1g")
    older, newer = make_session(cast.alice, name="older"), make_session(cast.alice, name="newer")
    ComputeSession.objects.filter(pk=older.pk).update(created_at=timezone.now() - timedelta(minutes=5))
    assert save(dana, group, sequence="lifo").status_code == 302
    assert schedule_group(group.pk, timezone.now()) == 1
    older.refresh_from_db()
    newer.refresh_from_db()
    assert (older.status, newer.status) == (Status.PENDING, Status.SCHEDULED)


@pytest.mark.parametrize(("selection", "agent"), [("concentrated", "busy"), ("dispersed", "idle")])
def test_switching_the_selection_changes_where_it_starts(dana: Client, cast: Cast, selection: str, agent: str) -> None:
    group = make_group()
    make_agent("idle", cpu=8)
    make_running_session(cast.bob, make_agent("busy", cpu=8))
    session = make_session(cast.alice)
    other = "dispersed" if selection == "concentrated" else "concentrated"
    ResourceGroup.objects.filter(pk=group.pk).update(selection=other)
    assert save(dana, group, selection=selection).status_code == 302
    assert schedule_group(group.pk, timezone.now()) == 1
    assert Kernel.objects.get(session=session).agent.name == agent


def test_the_trail_names_the_administrator_and_the_rules_that_changed(dana: Client, cast: Cast) -> None:
    group = make_group()
    save(dana, group, sequence="lifo", slot_order="cuda.device,  cpu,mem", backfill="on")
    group.refresh_from_db()
    assert group.slot_order == ["cuda.device", "cpu", "mem"]
    entry = AuditEntry.objects.get(action="resource-group.change")
    assert (entry.actor_id, entry.target_id) == (cast.dana.pk, str(group.pk))
    assert entry.details["changes"] == {
        "sequence": ["fifo", "lifo"],
        "slot_order": [[], ["cuda.device", "cpu", "mem"]],
        "backfill": [False, True],
    }
    save(dana, group)
    assert AuditEntry.objects.filter(action="resource-group.change").count() == 1
    save(dana, group, is_public=None, projects=[str(cast.project.pk)])
    entry = AuditEntry.objects.filter(action="resource-group.change").latest("pk")
    assert entry.details["changes"] == {"is_public": [True, False], "projects": [[], ["vision"]]}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("sequence", "random", "not one of the available choices"),
        ("allowed_session_types", [], "required"),
        ("slot_order", "cpu, !!", "is not a resource name"),
        ("pull_timeout", "-1", "more than 0 is required"),
        ("usage_half_life", "00:00:00", "choose 1 to 365 days"),
        ("retries_to_skip", "-1", "greater than or equal to 0"),
    ],
)
def test_a_wrong_rule_is_shown_at_its_field_and_nothing_changes(
    dana: Client, field: str, value: Any, text: str
) -> None:
    group = make_group()
    before = ResourceGroup.objects.values().get()
    answer = save(dana, group, **{field: value})
    assert answer.status_code == 200
    assert text in " ".join(answer.context["adminform"].form.errors[field])
    assert ResourceGroup.objects.values().get() == before
    assert not AuditEntry.objects.exclude(action__in=["user.create", "session.create"]).exists()


@pytest.mark.parametrize(("value", "text"), [('{"nothing": 1}', "No option is called"), ("{", "Enter a valid JSON")])
def test_options_are_asked_for_only_while_a_strategy_has_some(
    dana: Client, monkeypatch: pytest.MonkeyPatch, value: str, text: str
) -> None:
    group = make_group()
    pages = reverse("admin:cluster_resourcegroup_change", args=[group.pk]), f"/manage/groups/{group.pk}/"
    assert not any("strategy_options" in dana.get(page).content.decode() for page in pages)
    patient = replace(SEQUENCES["fifo"], name="patient", options=(Option("patience", "integer", 3, "How patient."),))
    monkeypatch.setitem(SEQUENCES, "patient", patient)
    assert all("patience (integer, usually 3), How patient." in dana.get(page).content.decode() for page in pages)
    errors = save(dana, group, strategy_options=value).context["adminform"].form.errors
    assert text in " ".join(errors["strategy_options"])


def test_a_new_group_comes_with_the_usual_rules(dana: Client) -> None:
    path = reverse("admin:cluster_resourcegroup_add")
    form = dana.get(path).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    sent = {
        name: "on" if value is True else value
        for name, value in values.items()
        if value is not None and value is not False
    }
    answer = dana.post(path, sent | {"name": "gpu"})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    group = ResourceGroup.objects.get(name="gpu")
    assert (group.sequence, group.selection, group.strategy_options) == ("fifo", "concentrated", {})
    assert group.allowed_session_types == ["interactive", "batch", "inference", "system"]
