"""The admin's pages of policies and of those who have them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.models import AuditEntry
from tests.cast import Cast

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

FORM = {
    "name": "students", "slots": "cpu=8, mem=64g, cuda.device=0", "unnamed_slots": "unlimited", "max_sessions": "3",
    "max_pending_sessions": "", "max_pending_slots": "", "max_priority": "20", "max_kernels_per_session": "",
    "max_session_lifetime": "",
    "max_concurrent_logins": "",
}  # fmt: skip


@pytest.fixture
def dana(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.dana)
    return client


def add(client: Client, **over: str) -> Any:
    return client.post(reverse("admin:accounts_resourcepolicy_add"), FORM | over)


def test_an_administrator_writes_amounts_as_people_do_and_reads_them_so(dana: Client) -> None:
    assert add(dana).status_code == 302
    policy = ResourcePolicy.objects.get()
    assert policy.slots == {"cpu": "8", "cuda.device": "0", "mem": str(64 * 2**30)}
    assert (policy.max_sessions, policy.max_priority, policy.max_pending_slots) == (3, 20, {})
    listing = dana.get(reverse("admin:accounts_resourcepolicy_changelist")).content.decode()
    assert "cpu 8, cuda.device 0, mem 64 GiB" in listing
    page = dana.get(reverse("admin:accounts_resourcepolicy_change", args=[policy.pk])).content.decode()
    assert 'value="cpu=8, cuda.device=0, mem=64g"' in page


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("cpu=-1", "-1 is out of range."),
        ("cpu", "enter a slot and its amount"),
        ("cpu=1, cpu=2", "cpu is listed twice"),
        ("gpu!=1", "is not a resource name"),
        ("mem=lots", "is not a size"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_field(dana: Client, typed: str, text: str) -> None:
    answer = add(dana, slots=typed)
    assert answer.status_code == 200
    assert text in " ".join(answer.context["adminform"].form.errors["slots"])
    assert not ResourcePolicy.objects.exists()


def test_the_trail_says_what_was_changed_from_what_to_what(dana: Client, cast: Cast) -> None:
    add(dana)
    policy = ResourcePolicy.objects.get()
    path = reverse("admin:accounts_resourcepolicy_change", args=[policy.pk])
    assert dana.post(path, FORM | {"max_sessions": "5", "slots": "mem=65536m,cpu=8,cuda.device=0"}).status_code == 302
    created, changed = AuditEntry.objects.filter(target_type="resource-policy").order_by("pk")
    assert (created.action, created.actor_id) == ("resource-policy.create", cast.dana.pk)
    assert changed.action == "resource-policy.change"
    assert changed.details == {"name": "students", "changes": {"max_sessions": [3, 5]}}


def test_a_save_that_changes_nothing_leaves_no_trail(dana: Client) -> None:
    add(dana)
    path = reverse("admin:accounts_resourcepolicy_change", args=[ResourcePolicy.objects.get().pk])
    dana.post(path, FORM)
    assert not AuditEntry.objects.filter(action="resource-policy.change").exists()


def test_a_policy_in_use_cannot_be_deleted_and_the_page_names_who_has_it(dana: Client, cast: Cast) -> None:
    add(dana)
    policy = ResourcePolicy.objects.get()
    cast.alice.policy = policy
    cast.alice.save()
    path = reverse("admin:accounts_resourcepolicy_delete", args=[policy.pk])
    page = dana.get(path).content.decode()
    assert "protected" in page
    assert "alice@example.com" in page
    dana.post(path, {"post": "yes"})
    assert ResourcePolicy.objects.filter(pk=policy.pk).exists()
    assert not AuditEntry.objects.filter(action="resource-policy.delete").exists()
    cast.alice.policy = None
    cast.alice.save()
    dana.post(path, {"post": "yes"})
    assert not ResourcePolicy.objects.exists()
    assert AuditEntry.objects.filter(action="resource-policy.delete", actor_id=cast.dana.pk).count() == 1


def test_giving_a_person_another_policy_and_weight_is_kept_in_the_trail(dana: Client, cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    path = reverse("admin:accounts_user_change", args=[cast.alice.pk])
    form = {
        "email": cast.alice.email, "full_name": "Alice A.", "role": "user", "domain": cast.alice.domain_id,
        "is_active": "on", "policy": policy.pk, "share_weight": "2.5", "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    answer = dana.post(path, form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    cast.alice.refresh_from_db()
    assert (cast.alice.policy, cast.alice.share_weight) == (policy, 2.5)
    entry = AuditEntry.objects.get(action="user.change")
    assert entry.details["changes"] == {"policy": [None, "students"], "share_weight": [1.0, 2.5]}


def test_members_that_are_added_changed_and_removed_on_a_page_are_in_the_trail(dana: Client, cast: Cast) -> None:
    path = reverse("admin:accounts_project_change", args=[cast.elsewhere.pk])
    row = cast.charlie.memberships.get()
    form = {
        "domain": cast.elsewhere.domain_id, "name": "other", "is_active": "on", "share_weight": "1.0",
        "created_at_0": "2026-01-01", "created_at_1": "00:00:00", "memberships-TOTAL_FORMS": "2",
        "memberships-INITIAL_FORMS": "1", "memberships-0-id": row.pk, "memberships-0-project": cast.elsewhere.pk,
        "memberships-0-user": cast.charlie.pk, "memberships-0-role": "member", "memberships-0-DELETE": "on",
        "memberships-0-created_at_0": "2026-01-01", "memberships-0-created_at_1": "00:00:00",
        "memberships-1-project": cast.elsewhere.pk, "memberships-1-user": cast.bob.pk, "memberships-1-role": "admin",
        "memberships-1-created_at_0": "2026-01-01", "memberships-1-created_at_1": "00:00:00",
    }  # fmt: skip
    answer = dana.post(path, form)
    assert answer.status_code == 302, answer.context["inline_admin_formsets"][0].formset.errors
    said = {
        entry.action: (entry.actor_id, entry.details["name"])
        for entry in AuditEntry.objects.filter(action__startswith="membership.")
    }
    assert said == {
        "membership.create": (cast.dana.pk, "bob@example.com in other"),
        "membership.delete": (cast.dana.pk, "charlie@example.com in other"),
    }


def test_a_new_person_made_on_the_page_is_in_the_trail_without_the_password(dana: Client, cast: Cast) -> None:
    form = {
        "email": "erin@example.com", "usable_password": "true", "password1": "a long enough secret",
        "password2": "a long enough secret", "role": "user", "domain": cast.alice.domain_id,
        "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    answer = dana.post(reverse("admin:accounts_user_add"), form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    entry = AuditEntry.objects.get(action="user.create", actor_id=cast.dana.pk)
    assert entry.details == {"name": "erin@example.com", "changes": {"domain": [None, "default"]}}


def test_a_project_gets_its_policy_on_its_page(dana: Client, cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="shared")
    path = reverse("admin:accounts_project_change", args=[cast.elsewhere.pk])
    form = {
        "domain": cast.elsewhere.domain_id, "name": "other", "is_active": "on", "policy": policy.pk,
        "share_weight": "1.0", "created_at_0": "2026-01-01", "created_at_1": "00:00:00",
        "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    answer = dana.post(path, form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    cast.elsewhere.refresh_from_db()
    assert cast.elsewhere.policy == policy
    changes = AuditEntry.objects.get(action="project.change").details["changes"]
    assert changes["policy"] == [None, "shared"]


def test_the_list_counts_who_has_a_policy_in_a_fixed_number_of_queries(
    dana: Client, cast: Cast, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        ResourcePolicy.objects.create(name=f"p{number}")
    for holder in (cast.alice, cast.bob, cast.alice.key_pairs.get(), cast.project):
        holder.policy = ResourcePolicy.objects.get(name="p0")
        holder.save()
    with django_assert_max_num_queries(8):
        page = dana.get(reverse("admin:accounts_resourcepolicy_changelist")).content.decode()
    assert "1 key pair, 2 users, 1 project" in page
    assert "nobody" in page
