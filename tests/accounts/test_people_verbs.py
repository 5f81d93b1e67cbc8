"""Making, changing, letting in and purging people; projects, members and domains."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import AccessToken, Domain, Membership, Project, User
from backendai.domain.accounts.services import (
    NewUser,
    add_member,
    change_domain,
    change_project,
    change_user,
    create_domain,
    create_project,
    create_token,
    create_user,
    delete_domain,
    delete_project,
    remove_member,
    set_member_role,
    set_password,
    set_user_active,
    user_of_token,
)
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession, EarlierLog, Kernel, KernelLog
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.usage.models import UsageBucket
from tests.accounts.world import World, make_world
from tests.cast import PASSWORD
from tests.factories import make_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()
HOSTILE = "<script>alert(1)</script> \u202egnirts " + "🦉" * 64


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def refusal(action: Callable[[], Any]) -> UserError:
    with pytest.raises(UserError) as refused:
        action()
    return refused.value


def test_a_user_is_made_with_a_key_pair_and_projects(world: World) -> None:
    new = NewUser(" New@Example.com", HOSTILE, domain=world.domain, password=PASSWORD, projects=[world.vision])
    user = create_user(world.erin, new)
    assert (user.email, user.full_name) == ("new@example.com", HOSTILE)
    assert user.key_pairs.count() == 1
    assert [one.project for one in user.memberships.all()] == [world.vision]
    entry = AuditEntry.objects.get(action="user.create", target_id=str(user.pk))
    assert entry.actor == world.erin
    assert PASSWORD not in str(entry.details)


@pytest.mark.parametrize(
    ("over", "field", "code"),
    [
        ({"email": "nobody"}, "email", "invalid-email"),
        ({"email": "a" * 250 + "@example.com"}, "email", "invalid-email"),
        ({"email": "ALICE@example.com"}, "email", "email-taken"),
        ({"full_name": "x" * 129}, "full_name", "invalid-name"),
        ({"full_name": "null\0byte"}, "full_name", "invalid-name"),
        ({"password": "short"}, "password", "weak-password"),
        ({"role": "admin", "domain": None}, "domain", "no-domain"),
    ],
)
def test_a_wrong_user_is_refused_by_field(world: World, over: dict[str, Any], field: str, code: str) -> None:
    before = User.objects.count()
    wishes: dict[str, Any] = {"email": "new@example.com", "domain": world.domain} | over
    error = refusal(lambda: create_user(world.cast.dana, NewUser(**wishes)))
    assert (error.field, error.code) == (field, code)
    assert User.objects.count() == before
    foreign = NewUser("new@example.com", domain=world.domain, projects=[world.other])
    assert refusal(lambda: create_user(world.cast.dana, foreign)).code == "other-domain"


def test_a_change_is_kept_with_old_and_new_values(world: World) -> None:
    dana = world.person("dana")
    change_user(
        dana, world.gina, {"full_name": "Gina", "email": "GINA@example.org", "domain": world.elsewhere}, now=NOW
    )
    gina = world.person("gina")
    assert (gina.full_name, gina.email, gina.domain) == ("Gina", "gina@example.org", world.elsewhere)
    assert AuditEntry.objects.get(action="user.change").details["changes"] == {
        "full_name": ["", "Gina"],
        "email": ["gina@example.com", "gina@example.org"],
        "domain": ["default", "elsewhere"],
    }
    change_user(dana, gina, {"full_name": "Gina"}, now=NOW)
    assert AuditEntry.objects.filter(action="user.change").count() == 1, "nothing changed"
    error = refusal(lambda: change_user(dana, world.cast.alice, {"domain": world.elsewhere}, now=NOW))
    assert (error.code, error.details["number"]) == ("in-old-projects", 1)
    assert refusal(lambda: change_user(dana, gina, {"email": "alice@example.com"}, now=NOW)).code == "email-taken"


def test_an_administrators_password_replaces_the_old_one_and_can_end_tokens(world: World) -> None:
    _, text = create_token(world.gina, "laptop")
    set_password(world.erin, world.gina, "battery horse staple", now=NOW)
    assert world.person("gina").check_password("battery horse staple")
    assert user_of_token(text) == world.gina
    set_password(world.erin, world.gina, "another horse staple", now=NOW, end_tokens=True)
    assert user_of_token(text) is None
    assert "horse" not in str(list(AuditEntry.objects.values()))


def test_deactivation_ends_tokens_for_good(world: World) -> None:
    _, text = create_token(world.gina, "laptop")
    assert set_user_active(world.erin, world.gina, False, now=NOW)
    assert not set_user_active(world.erin, world.gina, False, now=NOW), "it was so before"
    assert set_user_active(world.erin, world.gina, True, now=NOW)
    assert user_of_token(text) is None


def test_who_is_purged_leaves_no_name_and_what_they_did_stays(world: World) -> None:
    alice, dana = world.cast.alice, world.person("dana")
    create_token(alice, "laptop")
    done, live = make_session(alice), make_session(alice)
    terminate_session(done, alice)
    ComputeSession.objects.filter(pk=done.pk).update(
        environ={"API_KEY": "hunter2"}, spec={"startup_command": "hunter2"}
    )
    kernel = done.kernels.get()
    done.kernels.update(environ={"API_KEY": "hunter2"}, startup_command="echo hunter2")
    KernelLog.objects.create(kernel=kernel, content=gzip.compress(b"hunter2"))
    EarlierLog.objects.create(kernel=kernel, generation=1, content=gzip.compress(b"hunter2"))
    bucket = UsageBucket.objects.create(
        resource_group=ResourceGroup.objects.get(), user=alice, project=world.vision, domain=world.domain,
        day=NOW.date(), slot="cpu", amount_seconds=60,
    )  # fmt: skip
    assert refusal(lambda: purge_user(dana, alice, typed=alice.email, now=NOW)).code == "still-active"
    set_user_active(dana, alice, False, now=NOW)
    assert refusal(lambda: purge_user(dana, alice, typed="bob@example.com", now=NOW)).code == "not-confirmed"
    error = refusal(lambda: purge_user(dana, alice, typed=alice.email, now=NOW))
    assert (error.code, error.details["sessions"]) == ("sessions-live", {"PENDING": 1})
    assert "Active sessions: 1 (1 PENDING)" in error.message
    terminate_session(live, dana)
    purge_user(dana, alice, typed=" Alice@example.com", now=NOW)
    row = User.objects.get(pk=alice.pk)
    rows = (ComputeSession, Kernel, KernelLog, EarlierLog)
    assert "hunter2" not in str([list(one.objects.values()) for one in rows]) and not KernelLog.objects.exists()
    assert not EarlierLog.objects.exists()
    assert "alice" not in str(User.objects.filter(pk=alice.pk).values())
    assert (row.is_active, row.has_usable_password(), row.domain) == (False, False, None)
    assert not row.key_pairs.exists()
    assert not row.memberships.exists()
    assert not AccessToken.objects.filter(user=row).exists()
    assert row not in User.objects.visible_to(dana)
    done.refresh_from_db()
    bucket.refresh_from_db()
    assert done.owner == bucket.user == row
    assert AuditEntry.objects.get(action="user.purge").details == {"email": "alice@example.com"}
    create_user(dana, NewUser("alice@example.com", domain=world.domain))


def test_members_come_from_the_domain_and_go_again(world: World) -> None:
    membership = add_member(world.bob, world.vision, " GINA@example.com")
    assert (membership.user, membership.role) == (world.gina, "member")
    assert refusal(lambda: add_member(world.bob, world.vision, "gina@example.com")).code == "already-member"
    assert refusal(lambda: add_member(world.bob, world.vision, "charlie@example.com")).code == "unknown-person"
    assert refusal(lambda: add_member(world.bob, world.vision, "dana@example.com", role="boss")).code == "invalid-role"
    assert set_member_role(world.bob, world.vision, world.gina, "admin").role == "admin"
    remove_member(world.gina, world.vision, world.bob)
    assert not Membership.objects.filter(user=world.bob, project=world.vision).exists()
    assert refusal(lambda: remove_member(world.gina, world.vision, world.bob)).code == "no-member"
    actions = AuditEntry.objects.filter(target_type="project").order_by("at", "pk").values_list("action", flat=True)
    assert list(actions) == ["project.add-member", "project.set-member-role", "project.remove-member"]


def test_a_project_is_deleted_only_if_nothing_was_ever_run_in_it(world: World) -> None:
    project = create_project(world.erin, world.domain, "  new project ")
    assert project.name == "new project"
    assert refusal(lambda: create_project(world.erin, world.domain, "new project")).code == "name-taken"
    assert refusal(lambda: create_project(world.erin, world.domain, "a/b")).code == "invalid-name"
    assert refusal(lambda: change_project(world.erin, project, {"name": "vision"})).code == "name-taken"
    session = make_session(world.cast.alice)
    error = refusal(lambda: delete_project(world.erin, world.vision))
    assert (error.code, error.details["used_by"]) == ("project-in-use", {"compute-session": 1})
    change_project(world.erin, world.vision, {"is_active": False})
    session.refresh_from_db()
    assert session.status == "PENDING"
    add_member(world.erin, project, "gina@example.com")
    delete_project(world.erin, project)
    assert not Project.objects.filter(name="new project").exists()


def test_a_domain_is_deleted_only_when_it_is_empty(world: World) -> None:
    dana = world.person("dana")
    domain = create_domain(dana, "physics")
    ResourceGroup.objects.create(name="shared").domains.add(domain)
    error = refusal(lambda: delete_domain(dana, world.elsewhere))
    assert (error.code, error.details["used_by"]) == ("domain-in-use", {"user": 1, "project": 1})
    assert change_domain(dana, domain, {"name": "optics", "share_weight": 2.0}).name == "optics"
    assert refusal(lambda: change_domain(dana, domain, {"share_weight": 0.0})).field == "share_weight"
    delete_domain(dana, domain)
    assert not Domain.objects.filter(pk=domain.pk).exists()
