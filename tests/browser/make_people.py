"""Writes people into the database of a platform; runs inside its ``manage.py shell``."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person, create_token, get_or_create_project
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import Agent, ResourceGroup, SiteSetting
from backendai.domain.usage.models import UsageBucket
from tests.browser.people import ADMIN, ALICE, BOB, CHARLIE, EMOJI, PASSWORD, RIGHT_TO_LEFT, SCRIPT
from tests.factories import make_agent

_NOWHERE = "registry.invalid/lab/"


def make_visitors() -> None:
    """Make Alice and Charlie, let the administrator sign in with the password, and print a token of Alice's."""
    _let_in(ADMIN, full_name="")
    vision = get_or_create_project("default", EMOJI)
    other = get_or_create_project(SCRIPT, RIGHT_TO_LEFT)
    alice = create_person(ALICE, password=PASSWORD, project=vision, full_name=SCRIPT)
    create_person(CHARLIE, password=PASSWORD, project=other, full_name=RIGHT_TO_LEFT)
    Image.objects.exclude(name__in=["shell", "tiny"]).delete()
    Image.objects.filter(name="tiny").update(title=SCRIPT, description=EMOJI)
    Image.objects.filter(name="shell").update(title="Shell")
    print(create_token(alice, SCRIPT)[1])  # noqa: T201


def make_colleague() -> None:
    """Make Bob, who works with Alice in her project, and print a token of his."""
    alice = User.objects.get(email=ALICE)
    print(create_token(create_person(BOB, password=PASSWORD, project=alice.projects.get()), "laptop")[1])  # noqa: T201


def make_pair() -> None:
    """Make Alice and Bob of one project, who select agents, and print a token of each."""
    project = User.objects.get(email=ADMIN).projects.get()
    Image.objects.filter(name="shell").update(title="Shell")
    SiteSetting.objects.create(name="agent_select", value=True)
    people = [create_person(email, password=PASSWORD, project=project) for email in (ALICE, BOB)]
    print(*[create_token(person, "laptop")[1] for person in people])  # noqa: T201


def make_administrator() -> None:
    """Let the administrator sign in with the password."""
    print(_let_in(ADMIN, full_name="Ada Park").email)  # noqa: T201


def name_shell() -> None:
    """Give the image whose shells live in tmux its title."""
    print(Image.objects.filter(name="shell").update(title="Shell"))  # noqa: T201


def make_versions() -> None:
    """Add six environments that nobody can start, one of them in two versions."""
    tags = ["tensorflow:2.9", "tensorflow:2.15-cuda12", *(f"more-{number}:1.0" for number in range(5))]
    for tag in tags:
        Image.objects.create(name=tag.replace(":", "-"), reference=f"{_NOWHERE}{tag}")
    print(len(tags))  # noqa: T201


def drop_versions() -> None:
    """Take those away again from anyone who might choose them."""
    print(Image.objects.filter(reference__startswith=_NOWHERE).update(is_enabled=False))  # noqa: T201


def make_gpus() -> None:
    """Add a group whose agent, of which nobody hears, has two GPUs, and a preset for them; only presets are offered."""
    group = ResourceGroup.objects.create(name="gpus")
    capacity = {"cpu": "4", "mem": str(2**31), "cuda.device": "2"}
    make_agent("far", group=group, capacity=capacity, last_seen_at=timezone.now() + timedelta(days=1))
    ResourcePreset.objects.create(
        name="a-gpu", resource_group=group, slots={"cpu": "1", "mem": "1g", "cuda.device": "1"}
    )
    SiteSetting.objects.create(name="custom_allocation", value=False)
    print(group.name)  # noqa: T201


def drop_gpus() -> None:
    """Take that away again."""
    ResourcePreset.objects.filter(name="a-gpu").delete()
    Agent.objects.filter(name="far").delete()
    ResourceGroup.objects.filter(name="gpus").delete()
    print(SiteSetting.objects.filter(name="custom_allocation").delete())  # noqa: T201


def make_lab() -> None:
    """Make a colleague, let the administrator sign in under a name of her own, and print the colleague's token."""
    admin = _let_in(ADMIN, full_name="Ada Park")
    colleague = create_person("noor@example.com", password=None, project=admin.projects.get(), full_name="Noor")
    Image.objects.exclude(name__startswith="python").delete()
    for person, hours in ((admin, (52.0, 31.0, 44.0)), (colleague, (17.0, 63.0, 24.0))):
        _let_have_used(person, hours)
    print(create_token(colleague, "laptop")[1])  # noqa: T201


def _let_have_used(person: User, hours: tuple[float, ...]) -> None:
    """Write four weeks of CPU and memory: less on Saturdays and Sundays, and two thirds used."""
    project, group, today = person.projects.get(), ResourceGroup.objects.get(), timezone.now().date()
    buckets = []
    for number in range(1, 29):
        day = today - timedelta(days=number)
        cores = hours[number % len(hours)] * (0.2 if day.weekday() > 4 else 1.0)
        for slot, amount in (("cpu", cores), ("mem", cores * 2.5 * 2**30)):
            seconds = amount * 3600
            buckets.append(
                UsageBucket(
                    resource_group=group, user=person, project=project, domain=project.domain, day=day, slot=slot,
                    amount_seconds=seconds, measured_seconds=seconds, used_seconds=seconds * 0.67,
                )
            )  # fmt: skip
    UsageBucket.objects.bulk_create(buckets)


def _let_in(email: str, full_name: str) -> User:
    user = User.objects.get(email=email)
    user.full_name = full_name
    user.set_password(PASSWORD)
    user.save()
    return user
