"""Who may do what to whom: every action by every role to every kind of target. All that is not listed is refused
and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from backendai.base.core.errors import NotAllowed, UserError
from backendai.domain.accounts.models import Invitation, Membership, PolicyDefault, Project, ResourcePolicy, User
from backendai.domain.accounts.roles import RULES, Action
from backendai.domain.accounts.services import (
    Invitee,
    NewUser,
    add_member,
    change_domain,
    change_project,
    change_user,
    create_domain,
    create_project,
    create_user,
    delete_domain,
    delete_project,
    import_people,
    invite,
    remove_member,
    set_member_role,
    set_password,
    set_user_active,
)
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.purging import purge_user
from tests.accounts.world import World, make_world
from tests.factories import make_session

pytestmark = pytest.mark.django_db

ACTORS = ("dana", "erin", "bob", "alice")  # superadmin, domain admin, project admin of vision, user
USERS = ("alice", "gina", "bob", "erin", "frank", "dana", "charlie")
PROJECTS = ("vision", "speech", "other")
DOMAINS = ("domain", "elsewhere")
NOW = timezone.now
MANAGED = {"dana": set(PROJECTS), "erin": {"vision", "speech"}, "bob": {"vision"}}
BELOW_ERIN = {"alice", "gina", "bob", "frank"}  # not herself, no superadmin, nobody elsewhere
BELOW_DANA = set(USERS) - {"dana"}


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def to_users(erin: set[str], dana: set[str]) -> dict[str, set[str]]:
    return {"dana": dana, "erin": erin}


def purge(actor: User, user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)
    user.refresh_from_db()
    purge_user(actor, user, typed=user.email, now=NOW())


# action → what does it, on which targets, and who may on which of them
Try = Callable[[World, User, Any], Any]
ACTIONS: dict[str, tuple[Try, tuple[str, ...], dict[str, set[str]]]] = {
    "rename": (
        lambda _, actor, user: change_user(actor, user, {"full_name": "New Name"}, now=NOW()),
        USERS,
        to_users({*BELOW_ERIN, "erin"}, {*BELOW_DANA, "dana"}),
    ),
    "give a new address": (
        lambda _, actor, user: change_user(actor, user, {"email": "new@example.com"}, now=NOW()),
        USERS,
        to_users({*BELOW_ERIN, "erin"}, {*BELOW_DANA, "dana"}),
    ),
    "make superadmin": (
        lambda _, actor, user: change_user(actor, user, {"role": "superadmin"}, now=NOW()),
        USERS,
        # What somebody is already changes nothing.
        {"dana": {*BELOW_DANA, "dana"}, "erin": {"dana"}, "bob": {"dana"}, "alice": {"dana"}},
    ),
    "make domain admin": (
        lambda _, actor, user: change_user(actor, user, {"role": "admin"}, now=NOW()),
        USERS,
        to_users({*BELOW_ERIN, "erin"}, BELOW_DANA) | {who: {"erin", "frank"} for who in ("bob", "alice")},
    ),
    "make user": (
        lambda _, actor, user: change_user(actor, user, {"role": "user"}, now=NOW()),
        USERS,
        {
            "dana": BELOW_DANA,
            "erin": {*BELOW_ERIN, "charlie"},
            **{who: {"alice", "gina", "bob", "charlie"} for who in ("bob", "alice")},
        },
    ),
    "give a policy": (
        lambda _, actor, user: change_user(
            actor, user, {"policy": ResourcePolicy.objects.get(name="narrower")}, now=NOW()
        ),
        USERS,
        to_users(BELOW_ERIN, {*BELOW_DANA, "dana"}),
    ),
    "give a wide policy": (
        lambda _, actor, user: change_user(actor, user, {"policy": ResourcePolicy.objects.get(name="wide")}, now=NOW()),
        USERS,
        to_users(set(), {*BELOW_DANA, "dana"}),
    ),
    "give a share weight": (
        lambda _, actor, user: change_user(actor, user, {"share_weight": 2.0}, now=NOW()),
        USERS,
        to_users(set(), {*BELOW_DANA, "dana"}),
    ),
    "move to another domain": (
        lambda world, actor, user: change_user(actor, user, {"domain": world.elsewhere, "role": "user"}, now=NOW()),
        ("gina",),
        to_users(set(), {"gina"}),
    ),
    "deactivate": (
        lambda _, actor, user: set_user_active(actor, user, False, now=NOW()),
        USERS,
        to_users(BELOW_ERIN, BELOW_DANA),
    ),
    "set a password": (
        lambda _, actor, user: set_password(actor, user, "battery horse staple", now=NOW()),
        USERS,
        to_users(BELOW_ERIN, BELOW_DANA),
    ),
    "purge": (lambda _, actor, user: purge(actor, user), USERS, to_users(set(), BELOW_DANA)),
    "create a user": (
        lambda _, actor, domain: create_user(actor, NewUser("new@example.com", domain=domain, policy=narrow())),
        DOMAINS,
        to_users({"domain"}, set(DOMAINS)),
    ),
    "create a superadmin": (
        lambda _, actor, domain: create_user(actor, NewUser("new@example.com", role="superadmin", domain=domain)),
        DOMAINS,
        to_users(set(), set(DOMAINS)),
    ),
    "create a user without limits": (
        lambda _, actor, domain: create_user(actor, NewUser("new@example.com", domain=domain)),
        DOMAINS,
        to_users(set(), set(DOMAINS)),
    ),
    "create a project": (
        lambda _, actor, domain: create_project(actor, domain, "new"),
        DOMAINS,
        to_users({"domain"}, set(DOMAINS)),
    ),
    "create a domain": (lambda _, actor, domain: create_domain(actor, "new"), ("domain",), to_users(set(), {"domain"})),
    "change a domain": (
        lambda _, actor, domain: change_domain(actor, domain, {"name": "new", "policy": None}),
        DOMAINS,
        to_users(set(), set(DOMAINS)),
    ),
    "delete a domain": (lambda _, actor, domain: delete_domain(actor, domain), ("empty",), to_users(set(), {"empty"})),
    "rename a project": (
        lambda _, actor, project: change_project(actor, project, {"name": "new", "is_active": False}),
        PROJECTS,
        to_users({"vision", "speech"}, set(PROJECTS)),
    ),
    "give a project a policy": (
        lambda _, actor, project: change_project(actor, project, {"policy": narrow()}),
        PROJECTS,
        to_users({"vision", "speech"}, set(PROJECTS)),
    ),
    "give a project more than its domain": (
        lambda _, actor, project: change_project(actor, project, {"policy": ResourcePolicy.objects.get(name="wide")}),
        PROJECTS,
        to_users(set(), set(PROJECTS)),
    ),
    "give a project a share weight": (
        lambda _, actor, project: change_project(actor, project, {"share_weight": 3.0}),
        PROJECTS,
        to_users(set(), set(PROJECTS)),
    ),
    "delete a project": (
        lambda _, actor, project: delete_project(actor, project),
        PROJECTS,
        to_users({"vision", "speech"}, set(PROJECTS)),
    ),
    "add a member": (
        lambda world, actor, project: add_member(actor, project, outsider(world, project), role="admin"),
        PROJECTS,
        MANAGED,
    ),
    "remove a member": (
        lambda _, actor, project: remove_member(actor, project, project.members.exclude(pk=actor.pk).first()),
        PROJECTS,
        MANAGED,
    ),
    "make a project admin": (
        lambda _, actor, project: set_member_role(
            actor, project, project.members.exclude(pk=actor.pk).first(), "admin"
        ),
        PROJECTS,
        MANAGED,
    ),
    "invite": (
        lambda _, actor, project: invite(actor, project, Invitee("new@example.com", role="admin"), now=NOW()),
        PROJECTS,
        MANAGED,
    ),
    "invite with a policy": (
        lambda _, actor, project: invite(actor, project, Invitee("new@example.com", policy=narrow()), now=NOW()),
        PROJECTS,
        to_users({"vision", "speech"}, set(PROJECTS)),
    ),
    "invite with a wide policy": (
        lambda _, actor, project: invite(
            actor, project, Invitee("new@example.com", policy=ResourcePolicy.objects.get(name="wide")), now=NOW()
        ),
        PROJECTS,
        to_users(set(), set(PROJECTS)),
    ),
}


def narrow() -> ResourcePolicy:
    return ResourcePolicy.objects.get(name="narrow")


def outsider(world: World, project: Project) -> str:
    if project == world.other:
        return create_user(world.cast.dana, NewUser("newcomer@example.com", domain=world.elsewhere)).email
    return world.gina.email


def target_of(world: World, name: str) -> Any:
    if name == "empty":
        return create_domain(world.cast.dana, "empty")
    return world.person(name) if name in USERS else type(getattr(world, name)).objects.get(pk=getattr(world, name).pk)


def state() -> list[Any]:
    models: tuple[Any, ...] = (User, Project, Membership, Invitation, ResourcePolicy, AuditEntry)
    return [list(model.objects.order_by("pk").values()) for model in models]


@pytest.mark.parametrize("name", ACTIONS)
def test_it_lets_do_what_the_table_allows_and_refuses_the_rest_without_a_trace(world: World, name: str) -> None:
    action, targets, allowed = ACTIONS[name]
    limits = ResourcePolicy.objects.create(name="narrow", max_sessions=5, slots={"cpu": "4"})
    ResourcePolicy.objects.create(name="narrower", max_sessions=4, slots={"cpu": "4"})
    ResourcePolicy.objects.create(name="wide", max_sessions=6)
    User.objects.filter(pk=world.erin.pk).update(policy=limits)
    type(world.domain).objects.update(policy=limits)
    for target_name in targets:
        for actor_name in ACTORS:
            with transaction.atomic():
                target, actor, refused = target_of(world, target_name), world.person(actor_name), False
                before = state()
                try:
                    with transaction.atomic():
                        action(world, actor, target)
                except NotAllowed:
                    refused = True
                    if name != "purge":
                        assert state() == before, (actor_name, target_name)
                transaction.set_rollback(True)
            assert refused != (target_name in allowed.get(actor_name, set())), (actor_name, target_name)


def test_every_action_of_the_table_has_a_rule() -> None:
    assert set(RULES) == set(Action)


def test_a_project_admin_cannot_import_into_other_projects_or_with_policies(world: World) -> None:
    ResourcePolicy.objects.create(name="narrow", max_sessions=5)
    file = "email,project,policy\nnew@example.com,vision,\nnew@example.com,speech,\nmore@example.com,vision,narrow\n"
    plan, links = import_people(world.bob, file.encode(), now=NOW())
    assert [(problem.line, problem.field) for problem in plan.problems] == [(3, "project"), (4, "policy")]
    assert links == []
    assert not Invitation.objects.exists()


def test_who_is_limited_makes_people_with_the_policy_that_new_people_get(world: World) -> None:
    limits = ResourcePolicy.objects.create(name="narrow", max_sessions=5)
    User.objects.filter(pk=world.erin.pk).update(policy=limits)
    PolicyDefault.objects.create(holder="user", policy=limits)
    assert create_user(world.person("erin"), NewUser("new@example.com", domain=world.domain)).policy == limits


def test_a_project_admin_sees_no_session_of_others(world: World) -> None:
    session = make_session(world.cast.alice)
    seen = ComputeSession.objects.visible_to(world.bob)
    assert session not in seen
    assert session in ComputeSession.objects.visible_to(world.erin)


def test_a_domain_admin_without_a_domain_rules_nothing(world: World) -> None:
    User.objects.filter(pk__in=[world.erin.pk, world.gina.pk]).update(domain=None)
    erin = world.person("erin")
    assert list(User.objects.visible_to(erin)) == [erin]
    assert not Project.objects.managed_by(erin).exclude(memberships__user=erin).exists()
    with pytest.raises(NotAllowed):
        set_user_active(erin, world.person("gina"), False, now=NOW())


@pytest.mark.parametrize("role", ["user", "admin"])
def test_the_last_active_superadmin_stays_one(world: World, role: str) -> None:
    dana = world.person("dana")
    second = create_user(dana, NewUser("second@example.com", role="superadmin", domain=world.domain))
    set_user_active(dana, second, False, now=NOW())
    second.refresh_from_db()
    for action in (
        lambda: change_user(second, dana, {"role": role}, now=NOW()),
        lambda: set_user_active(second, dana, False, now=NOW()),
    ):
        with pytest.raises(UserError) as refused:
            action()
        assert refused.value.code == "last-superadmin"
    dana.refresh_from_db()
    assert (dana.role, dana.is_superuser, dana.is_active) == ("superadmin", True, True)
    set_user_active(dana, second, True, now=NOW())
    second.refresh_from_db()
    demoted = change_user(second, dana, {"role": role}, now=NOW())
    assert (demoted.role, demoted.is_superuser) == (role, False)
