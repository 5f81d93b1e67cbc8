"""Imports people from a CSV file: checks the whole file first, then imports everything or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, NotAllowed
from backendai.base.core.messages import Message
from backendai.domain.accounts.csv_people import Entry, Problem, read_people
from backendai.domain.accounts.models import Invitation, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.roles import Rank, rank_in_domain
from backendai.domain.accounts.services.grants import check_policy_of_user
from backendai.domain.accounts.services.invitations import VALID_FOR, new_invitation
from backendai.domain.accounts.services.members import notify_of_role
from backendai.domain.activity.services import audit

_AT_ONCE = 500
T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """The import of one line: an invitation, or the membership of a person who has an account."""

    entry: Entry
    project: Project
    policy: ResourcePolicy | None
    user: User | None


@dataclass(slots=True)
class Plan:
    """The steps of an import, and the problems that prevent it."""

    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def invitations(self) -> int:
        """The number of people to invite."""
        return sum(step.user is None for step in self.steps)

    @property
    def memberships(self) -> int:
        """The number of existing users to add to a project."""
        return len(self.steps) - self.invitations


@dataclass(frozen=True, slots=True)
class Link:
    """The secret of one invitation's link. It is shown once."""

    invitation: Invitation
    text: str


def plan_import(actor: User, content: bytes) -> Plan:
    """Return the plan of importing this file, with a problem for each invalid field; saves nothing.

    Two more queries for each 500 people. Raises UserError for an unreadable file.
    """
    entries, problems = read_people(content)
    plan = Plan(problems=list(problems))
    unreadable, told = {problem.line for problem in problems}, {(problem.line, problem.field) for problem in problems}
    projects = _projects(actor)
    policies = {policy.name: policy for policy in ResourcePolicy.objects.all()}
    users = _users({entry.email for entry in entries if entry.line not in unreadable})
    members = _members(list(users.values()))
    for entry in entries:
        step, wrong = _step(actor, entry, projects, policies, users.get(entry.email))
        if step is not None and step.user is not None and (step.user.pk, step.project.pk) in members:
            wrong.append(Problem(entry.line, "email", Message("They belong to this project already.")))
        plan.problems += [problem for problem in wrong if (problem.line, problem.field) not in told]
        if step is not None and not wrong and entry.line not in unreadable:
            plan.steps.append(step)
    _refuse_doubles(plan)
    plan.problems.sort(key=lambda problem: problem.line)
    return plan


def import_people(actor: User, content: bytes, *, now: datetime) -> tuple[Plan, list[Link]]:
    """Invite or add everybody in the file; return the plan and the links.

    Saves nothing if the plan has problems. Revokes earlier invitations of the same people to the same projects.
    """
    with transaction.atomic():
        plan = plan_import(actor, content)
        if plan.problems:
            return plan, []
        try:
            links = _carry_out(actor, plan.steps, now)
        except IntegrityError as error:
            text = Message("Someone else has just added some of these people. Check the file again.")
            raise Conflict(text, code="changed-meanwhile") from error
        audit(actor.pk, "user.import", "user", ["*"], invited=plan.invitations, joined=plan.memberships)
    return plan, links


def _projects(actor: User) -> dict[str, list[Project]]:
    """Return the projects whose members the actor may choose, by name and by domain/name."""
    found: dict[str, list[Project]] = {}
    for project in Project.objects.managed_by(actor).select_related("domain"):
        for key in (project.name, f"{project.domain.name}/{project.name}"):
            found.setdefault(key, []).append(project)
    return found


def _users(emails: set[str]) -> dict[str, User]:
    users: dict[str, User] = {}
    for some in _pieces(sorted(emails)):
        users |= {user.email: user for user in User.objects.filter(email__in=some)}
    return users


def _members(users: Sequence[User]) -> set[tuple[object, object]]:
    found: set[tuple[object, object]] = set()
    for some in _pieces(users):
        found |= set(Membership.objects.filter(user__in=some).values_list("user_id", "project_id"))
    return found


def _step(
    actor: User,
    entry: Entry,
    projects: dict[str, list[Project]],
    policies: dict[str, ResourcePolicy],
    user: User | None,
) -> tuple[Step | None, list[Problem]]:
    problems = []
    found = projects.get(entry.project, [])
    if not found:
        problems.append(Problem(entry.line, "project", Message("No project of this name whose members you manage.")))
    elif len(found) > 1:
        problems.append(Problem(entry.line, "project", Message("Several domains have it: write domain/project.")))
    elif not (found[0].is_active and found[0].domain.is_active):
        problems.append(Problem(entry.line, "project", Message("The project is not active.")))
    policy = policies.get(entry.policy) if entry.policy else None
    if len(found) != 1:
        return None, problems
    if text := _wrong_policy(actor, entry, found[0], policy, user):
        problems.append(Problem(entry.line, "policy", text))
    if user is not None and (user.domain_id != found[0].domain_id or not user.is_active):
        problems.append(Problem(entry.line, "email", Message("This address cannot be added to this project.")))
    return Step(entry, found[0], policy, user), problems


def _wrong_policy(actor: User, entry: Entry, project: Project, policy: ResourcePolicy | None, user: User | None) -> str:
    if not entry.policy:
        return ""
    if rank_in_domain(actor, project.domain_id) < Rank.DOMAIN_ADMIN:
        return Message("You cannot assign policies: leave it empty.")
    if policy is None:
        return Message("Policy not found.")
    if user is not None:
        return Message("They have an account already: set the policy there.")
    try:
        check_policy_of_user(actor, policy)
    except NotAllowed as error:
        return error.message
    return ""


def _refuse_doubles(plan: Plan) -> None:
    """Add a problem for each line that repeats the person and project of an earlier line."""
    first: dict[tuple[str, object], int] = {}
    for step in plan.steps:
        line = first.setdefault((step.entry.email, step.project.pk), step.entry.line)
        if line != step.entry.line:
            text = Message("The same person and project as on line {line}.", line=line)
            plan.problems.append(Problem(step.entry.line, "email", text))


def _carry_out(actor: User, steps: list[Step], now: datetime) -> list[Link]:
    links = []
    for step in steps:
        if step.user is None:
            text, row = new_invitation(actor, step.project, step.entry.email, now + VALID_FOR, now)
            row.full_name, row.role, row.policy = step.entry.full_name, step.entry.role, step.policy
            links.append(Link(row, text))
    for some in _pieces([link.invitation for link in links]):
        _revoke_earlier(some, now)
        Invitation.objects.bulk_create(some)
        audit(actor.pk, "invitation.create", "invitation", [row.pk for row in some], by="import")
    _join(actor, [step for step in steps if step.user is not None])
    return links


def _revoke_earlier(invitations: Iterable[Invitation], now: datetime) -> None:
    emails = defaultdict(list)
    for invitation in invitations:
        emails[invitation.project_id].append(invitation.email)
    for project_id, some in emails.items():
        earlier = Invitation.objects.pending().filter(project=project_id, email__in=some)
        earlier.update(revoked_at=now, policy=None)


def _join(actor: User, steps: list[Step]) -> None:
    rows = [Membership(user=step.user, project=step.project, role=step.entry.role) for step in steps]
    Membership.objects.bulk_create(rows, batch_size=_AT_ONCE)
    emails = defaultdict(list)
    for step in steps:
        emails[step.project.pk].append(step.entry.email)
    for project_id, some in emails.items():
        audit(actor.pk, "project.add-member", "project", [project_id], by="import", emails=some)
    by_role = defaultdict(list)
    for step in steps:
        if step.user is not None:
            by_role[step.project, step.entry.role].append(step.user)
    for (project, role), users in by_role.items():
        notify_of_role(actor, project, users, role)


def _pieces(rows: Sequence[T]) -> Iterable[Sequence[T]]:
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))
