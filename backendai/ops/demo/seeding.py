"""Fills the database of a new demonstration: people, groups, images, templates, and four weeks of the past."""

from __future__ import annotations

import random
import unicodedata
import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from backendai.base.core.slots import MILLI, Slots
from backendai.domain.accounts.models import KeyPair, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.services import create_person, get_or_create_project
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import Announcement, IdleBinding, IdleChecker, ResourceGroup, SlotType
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.reasons import FINISHED
from backendai.domain.compute.status import Result, Status
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from backendai.domain.usage.models import UsageBucket
from backendai.ops.demo.lab import ADMIN, DOMAIN, GROUPS, HERE, IMAGES, PEOPLE, PRESETS, WORK, Work

_DAYS, _PER_DAY = 28, 50
_LABELS = {
    "ai.backend.service-ports": "jupyterlab:http:8888,tensorboard:http:6006",
    "ai.backend.accelerators": "cuda,rocm",
    "ai.backend.features": "batch query tty",
    "ai.backend.role": "COMPUTE",
}
_TEMPLATE = """params:
  lr: {type: number, default: 0.1, help: Learning rate}
image: pytorch
type: batch
resources: {cpu: 12, mem: 96g, cuda.device: 1}
resource_group: h100
startup_command: python train.py --lr "$PARAM_LR"
"""


def fill(now: datetime, *, seed: int) -> None:
    """Write everything, unless it is there. The same seed writes the same."""
    if Project.objects.filter(domain__name=DOMAIN).exists():
        return
    with transaction.atomic():
        groups = _groups()
        people = _people()
        images = {
            name: Image.objects.create(
                name=name, title=title, description=about, reference=f"demo/{name}:latest", labels=_LABELS
            )
            for name, title, about in IMAGES
        }
        for rank, (name, slots) in enumerate(PRESETS):
            ResourcePreset.objects.create(name=name, rank=10 + rank, slots=slots)
        _rules(groups)
        _Past(now, random.Random(seed), groups, people, images).write()
        Announcement.objects.create(text="Saturday, 8:00 to 10:00: maintenance of the H100 machines.")
        SlotType.objects.update_or_create(
            name="cuda.mig-1g.10gb",
            defaults={"display_name": "MIG 1g.10gb", "kind": SlotType.Kind.UNIQUE, "quantum": MILLI},
        )
        leader = people["vision"][0]
        draft = TemplateDraft("training", title="Training", description="Trains a model on one H100.", icon="cpu")
        draft_project = get_or_create_project(DOMAIN, "vision")
        create_template(leader, _of_project(draft, draft_project), _TEMPLATE, now=now)


def _of_project(draft: TemplateDraft, project: Project) -> TemplateDraft:
    return TemplateDraft(
        draft.name,
        scope=Template.Scope.PROJECT,
        project=str(project.pk),
        title=draft.title,
        description=draft.description,
        icon=draft.icon,
    )


def _groups() -> dict[str, ResourceGroup]:
    here = ResourceGroup.objects.get(name=HERE)
    here.description = "Sessions here really run, as native processes of this machine."
    here.save()
    made = [
        ResourceGroup.objects.create(name=name, description=about, backfill=True, retries_to_skip=10)
        for name, about in GROUPS.items()
    ]
    return {group.name: group for group in made}


def _people() -> dict[str, list[User]]:
    """Return the people by project; the first of each leads it. Nobody has a password."""
    student = ResourcePolicy.objects.create(name="students", max_sessions=2, max_pending_sessions=3)
    found: dict[str, list[User]] = {}
    for name, team in PEOPLE.items():
        project = get_or_create_project(DOMAIN, name)
        found[name] = [create_person(_email(one), password=None, project=project, full_name=one) for one in team]
        Membership.objects.filter(user=found[name][0], project=project).update(role=Membership.Role.ADMIN)
    User.objects.filter(pk__in=[one.pk for one in found["class"][1:]]).update(policy=student)
    admin = User.objects.get(email=ADMIN)
    admin.full_name = "Sofia Lind"
    admin.set_unusable_password()
    admin.save()
    return found


def _email(name: str) -> str:
    first = unicodedata.normalize("NFKD", name.partition(" ")[0]).encode("ascii", "ignore").decode()
    return f"{first.lower()}@demo.invalid"


def _rules(groups: dict[str, ResourceGroup]) -> None:
    """Write the idle checkers: unused notebooks and GPUs are warned of within minutes."""
    quiet = IdleChecker.objects.create(
        name="unused-notebooks", limit=timedelta(minutes=25), warning=timedelta(minutes=10), description="No traffic."
    )
    lazy = IdleChecker.objects.create(
        name="gpus-at-rest",
        kind="utilization",
        limit=timedelta(minutes=4),
        warning=timedelta(minutes=2),
        thresholds={"cuda.device": 10},
    )
    for checker, name in ((quiet, "shared-gpus"), (lazy, "h100")):
        IdleBinding.objects.create(checker=checker, resource_group=groups[name])


class _Past:
    """Four weeks of ended sessions, and of amounts held and used; less on Saturdays and Sundays."""

    def __init__(
        self,
        now: datetime,
        chance: random.Random,
        groups: dict[str, ResourceGroup],
        people: dict[str, list[User]],
        images: dict[str, Image],
    ) -> None:
        self._now, self._chance = now, chance
        self._groups, self._people, self._images = groups, people, images
        self._keys = dict(KeyPair.objects.values_list("user_id", "access_key"))
        self._projects = {project.name: project for project in Project.objects.select_related("domain")}
        self._held: dict[tuple[str, User, str, int, str], tuple[float, float]] = {}

    def write(self) -> None:
        """Write it in a few statements."""
        sessions = [self._session(day) for day in range(1, _DAYS + 1) for _ in range(self._number(day))]
        ComputeSession.objects.bulk_create(sessions)
        Kernel.objects.bulk_create(
            Kernel(id=one.pk, session=one, status=one.status, slots=one.slots) for one in sessions
        )
        UsageBucket.objects.bulk_create(self._buckets())

    def _number(self, day: int) -> int:
        is_weekend = (self._now - timedelta(days=day)).weekday() > 4
        return _PER_DAY // 4 if is_weekend else _PER_DAY

    def _session(self, day: int) -> ComputeSession:
        chance = self._chance
        work = chance.choices(WORK, [one.weight for one in WORK])[0]
        person = chance.choice(self._people[work.project])
        waited = timedelta(minutes=chance.expovariate(1 / 12))
        # As long as those that live here, for forecasts learn from it; what a real lab would use goes to its usage.
        lasted = timedelta(minutes=chance.uniform(*work.minutes)) / settings.DEMO_SPEED
        created_at = self._now - timedelta(days=day, minutes=chance.uniform(0, 700))
        self._count(work, person, day, 3600 * chance.uniform(0.5, 9))
        has_failed = bool(work.command) and chance.random() < 0.12
        result = Result.UNDEFINED if not work.command else Result.FAILED if has_failed else Result.SUCCESS
        return ComputeSession(
            id=uuid.UUID(int=chance.getrandbits(128), version=4),
            name=f"{work.name}-{chance.randrange(1000, 10_000)}",
            owner=person,
            project=self._projects[work.project],
            resource_group=self._groups[work.group],
            image=self._images[work.image],
            access_key=self._keys[person.pk],
            session_type=work.session_type,
            startup_command=work.command,
            slots=Slots.parse(work.resources).to_json(),
            total_slots=Slots.parse(work.resources).to_json(),
            status=Status.TERMINATED,
            result=result,
            status_reason="user-requested" if not work.command else "task-failed" if has_failed else FINISHED,
            created_at=created_at,
            started_at=created_at + waited,
            changed_at=created_at + waited + lasted,
            ended_at=created_at + waited + lasted,
        )

    def _count(self, work: Work, person: User, day: int, seconds: float) -> None:
        for slot, amount in Slots.parse(work.resources).items():
            key = (work.group, person, work.project, day, slot)
            held, used = self._held.get(key, (0.0, 0.0))
            more = amount / 1000 * seconds
            self._held[key] = (held + more, used + more * work.load * self._chance.uniform(0.8, 1.0))

    def _buckets(self) -> list[UsageBucket]:
        return [
            UsageBucket(
                resource_group=self._groups[group],
                user=person,
                project=self._projects[project],
                domain=self._projects[project].domain,
                day=(self._now - timedelta(days=day)).date(),
                slot=slot,
                amount_seconds=held,
                measured_seconds=held,
                used_seconds=used,
            )
            for (group, person, project, day, slot), (held, used) in self._held.items()
        ]
