"""What an administrator finds on the pages of the Django admin, and how things are written there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.audited_admin import Audited
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.accounts.policies.duration_field import TimeSpanField, short_duration
from backendai.domain.accounts.services import create_token
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.portal.loops.loops import schedule_group
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def dana(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.dana)
    return client


def text_of(client: Client, name: str, *args: Any) -> str:
    answer = client.get(reverse(f"admin:{name}", args=args))
    assert answer.status_code == 200
    return answer.content.decode()


def sent(client: Client, path: str, **over: Any) -> dict[str, Any]:
    """Return what a browser would send from an admin page, with these fields changed."""
    form = client.get(path).context["adminform"].form
    values = {name: "on" if form[name].value() is True else form[name].value() for name in form.fields}
    return {name: value for name, value in (values | over).items() if value is not None and value is not False}


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("30m", 1800), ("2h 30m", 9000), ("2h30m", 9000), ("1.5 hours", 5400), ("7 days, 2 hours", 612000),
        ("1 week", 604800), ("90s", 90), ("0", 0), ("00:30:00", 1800), ("1 00:00:00", 86400), ("-5m", -300),
    ],
)  # fmt: skip
def test_a_time_is_read_as_people_write_it(typed: str, seconds: int) -> None:
    assert TimeSpanField().clean(typed) == timedelta(seconds=seconds)


@pytest.mark.parametrize("typed", ["5", "soon", "3 parsecs", "h", "999999999w", "1:2:3:4", "1h later"])
def test_a_time_without_a_meaning_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(forms.ValidationError, match="such as 90s, 30m, 2h or 7d"):
        TimeSpanField().clean(typed)


@pytest.mark.parametrize("text", ["0", "30m", "2h 30m", "7d", "1d 1s", "-1m", "0.5s"])
def test_a_time_is_shown_as_it_would_be_typed(text: str) -> None:
    assert short_duration(TimeSpanField().clean(text)) == text


def test_the_portal_leads_to_the_rules(dana: Client, cast: Cast) -> None:
    agent = make_agent()
    rules = reverse("manage:group", args=[agent.resource_group_id])
    assert f'href="{rules}"' in dana.get(reverse("manage:agent", args=[agent.pk])).content.decode()
    assert f'href="{rules}"' in dana.get(reverse("web:sessions")).content.decode()
    client = Client()
    client.force_login(cast.alice)
    assert "/admin/" not in client.get(reverse("web:sessions")).content.decode()


def test_the_first_page_says_where_to_find_what_and_leads_back(dana: Client) -> None:
    page = text_of(dana, "index")
    assert "Which session starts next, on which agent" in page
    assert f'href="{reverse("web:sessions")}">Sessions</a>' in page
    assert "/admin/auth/group/" not in page


def test_times_of_a_group_are_written_with_their_units(dana: Client) -> None:
    group = make_group()
    path = reverse("admin:cluster_resourcegroup_change", args=[group.pk])
    values = sent(dana, path, pending_timeout="1h 30m", pull_timeout="45m")
    assert (values["create_timeout"], values["usage_half_life"], values["overtaking_limit"]) == ("2m", "7d", "1d")
    assert dana.post(path, values).status_code == 302
    group.refresh_from_db()
    assert (group.pending_timeout, group.pull_timeout) == (timedelta(minutes=90), timedelta(minutes=45))
    entry = AuditEntry.objects.get(action="resource-group.change")
    assert set(entry.details["changes"]) == {"pending_timeout", "pull_timeout"}
    answer = dana.post(path, values | {"pull_timeout": "45"})
    assert "such as 90s, 30m" in " ".join(answer.context["adminform"].form.errors["pull_timeout"])


def test_the_list_of_groups_tells_their_rules_in_a_fixed_number_of_queries(
    dana: Client, django_assert_max_num_queries: Any
) -> None:
    make_agent("alive")
    make_agent("silent", status=Agent.Status.LOST)
    ResourceGroup.objects.update(retries_to_skip=10, backfill=True, pending_timeout=timedelta(hours=2))
    for number in range(4):
        make_group(f"more-{number}")
    with django_assert_max_num_queries(8):
        page = text_of(dana, "cluster_resourcegroup_changelist")
    for text in ("after 10 tries, backfill", "2h", "1 of 2", "0 of 0", "everybody"):
        assert text in page


def test_agents_can_be_kept_from_new_sessions_and_the_next_pass_follows(dana: Client, cast: Cast) -> None:
    first, second = make_agent("node-1"), make_agent("node-2", schedulable=False)
    session = make_session(cast.alice)
    path = reverse("admin:cluster_agent_changelist")
    chosen = {"action": "keep_new_sessions_away", "_selected_action": [str(first.pk), str(second.pk)]}
    assert "1 agent changed" in dana.post(path, chosen, follow=True).content.decode()
    assert schedule_group(session.resource_group_id, timezone.now()) == 0
    dana.post(path, chosen | {"action": "take_sessions_again", "_selected_action": [str(first.pk)]})
    assert schedule_group(session.resource_group_id, timezone.now()) == 1
    trail = AuditEntry.objects.filter(action="agent.change").order_by("pk").values_list("details", flat=True)
    assert [entry["changes"]["schedulable"] for entry in trail] == [[True, False], [False, True]]


def test_a_preset_is_written_and_listed_as_people_write_amounts(dana: Client) -> None:
    path = reverse("admin:catalog_resourcepreset_add")
    form = {"name": "gpu", "resource_group": "", "slots": "cpu=4, mem=16g, cuda.device=1", "shm_bytes": "", "rank": "1"}
    answer = dana.post(path, form | {"slots": ""})
    assert "such as cpu=1, mem=1g" in " ".join(answer.context["adminform"].form.errors["slots"])
    assert dana.post(path, form).status_code == 302
    preset = ResourcePreset.objects.get(name="gpu")
    assert preset.slots == {"cpu": "4", "mem": str(16 * 2**30), "cuda.device": "1"}
    assert "cpu 4, cuda.device 1, mem 16 GiB" in text_of(dana, "catalog_resourcepreset_changelist")
    page = text_of(dana, "catalog_resourcepreset_change", preset.pk)
    assert 'value="cpu=4, cuda.device=1, mem=16g"' in page


def test_the_smallest_size_of_an_image_is_written_so_too(dana: Client) -> None:
    image = make_image(minimum={"cpu": "1", "mem": str(2**29)})
    path = reverse("admin:catalog_image_change", args=[image.pk])
    values = sent(dana, path, minimum="cpu=0.5, mem=1g")
    assert dana.post(path, values).status_code == 302
    image.refresh_from_db()
    assert image.minimum == {"cpu": "0.5", "mem": str(2**30)}
    entry = AuditEntry.objects.get(action="image.change", target_id=image.pk)
    assert entry.details["changes"]["minimum"][1] == {"cpu": "0.5", "mem": str(2**30)}


def test_whatever_can_be_written_here_is_kept_in_the_trail(cast: Cast, rf: RequestFactory) -> None:
    request = rf.get("/")
    request.user = cast.dana
    written = [page for page in admin.site._registry.values() if page.has_change_permission(request)]
    assert len(written) > 10
    assert [page for page in written if not isinstance(page, Audited)] == []


def test_nobody_widens_a_token_here(cast: Cast, dana: Client) -> None:
    token, _ = create_token(cast.alice, "narrow", scopes=["read"])
    path = reverse("admin:accounts_accesstoken_change", args=[token.pk])
    assert dana.post(path, {"name": "narrower", "scopes": "null"}).status_code == 302
    token.refresh_from_db()
    assert (token.name, token.scopes) == ("narrower", ["read"])
    assert AuditEntry.objects.get(action="token.change").details["changes"] == {"name": ["narrow", "narrower"]}


def test_the_longest_run_of_a_policy_is_written_and_listed_with_its_unit(dana: Client) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    path = reverse("admin:accounts_resourcepolicy_change", args=[policy.pk])
    assert dana.post(path, sent(dana, path, max_session_lifetime="12h")).status_code == 302
    policy.refresh_from_db()
    assert policy.max_session_lifetime == timedelta(hours=12)
    assert "12h" in text_of(dana, "accounts_resourcepolicy_changelist")


def test_a_session_in_the_admin_leads_to_its_page(dana: Client, cast: Cast) -> None:
    session = make_session(cast.alice)
    page = text_of(dana, "compute_computesession_change", session.pk)
    assert f'href="{reverse("web:session", args=[session.pk])}"' in page
    assert ComputeSession.objects.get().status == "PENDING"
