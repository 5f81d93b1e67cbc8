"""Writes one of everything into the database of a platform, under names that must come out as text; runs inside its
``manage.py shell``."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from django.utils import timezone

from backendai.domain.accounts.models import AccessToken, Domain, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.services import Invitee, create_person, create_token, get_or_create_project, invite
from backendai.domain.accounts.services.environments import add_ssh_key, save_dotfile, set_bootstrap_script
from backendai.domain.activity.jobs import start_job
from backendai.domain.catalog.models import Image, Registry, ResourcePreset
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import Agent, Announcement, IdleChecker, JoinToken, ResourceGroup, SlotType
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import UnknownKernel
from backendai.domain.storage.models import StorageHost
from backendai.domain.storage.services import create_folder
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template, publish_version
from tests.browser.people import ADMIN, ALICE, CHARLIE, EMOJI, PASSWORD, RIGHT_TO_LEFT, SCRIPT

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBfUnj+GtUOU8bLyGpsMGbeXBQoxN5nKYhzaI9X6N3rU"
_HOSTILE = f"{SCRIPT} {RIGHT_TO_LEFT}"
_CUDA = {"ai.backend.accelerators": "cuda", "ai.backend.service-ports": "notebook:http:8888,board:http:6006"}
_NO_CUDA = {"ai.backend.accelerators": ""}


def make_campus() -> None:
    """Write it all, and print Alice's token with the rows that stand in addresses."""
    admin = User.objects.get(email=ADMIN)
    admin.full_name = _HOSTILE
    admin.set_password(PASSWORD)
    admin.save()
    project = get_or_create_project("default", RIGHT_TO_LEFT)
    get_or_create_project("default", EMOJI)
    alice = create_person(ALICE, password=PASSWORD, project=project, full_name=_HOSTILE)
    create_person(CHARLIE, password=PASSWORD, project=project, full_name=RIGHT_TO_LEFT)
    _images()
    token, text = create_token(alice, SCRIPT)
    # Names with invisible letters are rejected now; rows of earlier versions still have them.
    AccessToken.objects.filter(pk=token.pk).update(name=_HOSTILE)
    add_ssh_key(alice, _KEY, name=EMOJI)
    save_dotfile(alice, alice, ".bashrc", SCRIPT)
    set_bootstrap_script(alice, f"echo '{RIGHT_TO_LEFT}'")
    change_site(admin, {"agent_select": True, "manual_image": True}, now=timezone.now())
    rows = {"token": token.pk} | _rows(admin, alice, project)
    print(json.dumps({"alice": text} | {name: str(pk) for name, pk in rows.items()}))  # noqa: T201


def _images() -> None:
    Image.objects.exclude(name="tiny").delete()
    Image.objects.filter(name="tiny").update(title=_HOSTILE, description=EMOJI, labels=_NO_CUDA)
    for version in ("2.3", "2.4"):
        reference = f"simulated/torch:{version}-py312"
        Image.objects.create(name=f"torch-{version}", title="PyTorch", reference=reference, labels=_CUDA)


def _rows(admin: User, alice: User, project: Project) -> dict[str, Any]:
    """Return the rows by how an address of the administration pages begins."""
    now = timezone.now()
    group = ResourceGroup.objects.create(name="spare")
    open_group = ResourceGroup.objects.get(name="default")
    ResourcePreset.objects.all().delete()
    ResourcePreset.objects.create(name="small", slots={"cpu": "1", "mem": "512m"}, shm_bytes=64 * 2**20)
    big = ResourcePreset.objects.create(name="too-large", slots={"cpu": "500", "mem": "1t"})
    invitation, _ = invite(admin, project, Invitee("new@example.com", full_name=_HOSTILE), now=now)
    Membership.objects.filter(user=alice, project=project).update(role=Membership.Role.ADMIN)
    create_join_token(open_group)
    job = start_job("image.pull", _HOSTILE, now=now, owner_id=alice.pk)
    own = Image.objects.create(
        name="customized-1", title=RIGHT_TO_LEFT, reference="local/customized:1", is_customized=True, owner=alice
    )
    announcement = Announcement.objects.create(text=_HOSTILE)
    return {
        "domains": Domain.objects.create(name=_HOSTILE).pk,
        "policies": ResourcePolicy.objects.create(name=RIGHT_TO_LEFT).pk,
        "users": alice.pk,
        "projects": project.pk,
        "key-pairs": alice.key_pairs.get().pk,
        "invitations": invitation.pk,
        "agents": Agent.objects.earliest("name").pk,
        "unknown-kernels": _unknown_kernel(),
        "groups": group.pk,
        "slot-types": SlotType.objects.get(name="cpu").pk,
        "announcements": announcement.pk,
        "presets": big.pk,
        "folder": create_folder(alice, name="results", now=now).pk,
        "storage-hosts": StorageHost.objects.get().pk,
        "images": Image.objects.get(name="tiny").pk,
        "registries": Registry.objects.create(name=RIGHT_TO_LEFT, url="https://cr.example.org").pk,
        "idle-checkers": IdleChecker.objects.create(name="quiet").pk,
        "own-images": own.pk,
        "template": _template(alice).pk,
        "jobs": job.pk,
        "join-tokens": JoinToken.objects.latest("pk").pk,
    }


def _unknown_kernel() -> int:
    """Return the row of a kernel that the database does not know."""
    manifest = {"name": "lost", "owner": ALICE, "hostname": "main1", "cluster_size": 1, "rank": 0, "kernel_slots": {}}
    row = UnknownKernel.objects.create(
        agent=Agent.objects.earliest("name"), kernel_id=uuid4(), generation=1, session_id=uuid4(), manifest=manifest
    )
    return int(row.pk)


def _template(alice: User) -> Template:
    """A template of two versions, whose words are not what words should be."""
    now, text = (
        timezone.now(),
        f"params: {{lr: {{type: number, default: 0.1, help: {json.dumps(SCRIPT)}}}}}\nimage: torch-2.4\n",
    )
    wish = TemplateDraft("training", title=f"Training {EMOJI[:8]}", description=SCRIPT, icon="cpu")
    made = create_template(alice, wish, text, now=now)
    publish_version(alice, made, text + "locked: [image]\n", note="image locked", now=now)
    return made
