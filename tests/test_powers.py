"""What acts for a person does so no more after their deactivation: a walk over the list, and what is not on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.conf import LazySettings
from django.db import transaction
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Membership, User
from backendai.domain.accounts.powers import POWERS, powers_of
from backendai.domain.accounts.services import create_token, digest_of
from backendai.domain.accounts.services.devices import allow_request, open_request, redeem_device_code
from backendai.domain.accounts.services.environments import add_ssh_key
from backendai.domain.accounts.services.invitations import Invitee, invite, open_invitation
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import host_of, make_entry
from backendai.domain.compute.services.apps.public import open_to_everybody, public_app_at
from backendai.domain.compute.services.launching.sharing import share_session
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.pipelines.services.creating import array_of, create_run
from backendai.domain.serving.endpoint_table import read_table
from backendai.domain.serving.services.tokens import create_token as create_endpoint_token
from backendai.domain.storage.file_origins import file_host, make_file_entry
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus
from backendai.gates.appproxy.file_grants import open_files_by, redeem_file_code
from backendai.gates.appproxy.grants import open_by, redeem
from backendai.gates.gateways.ssh_access import key_of
from backendai.gates.gateways.targets import Denied
from backendai.gates.sshgate.entrances import entrance_for
from backendai.portal.loops.loops import run_pipelines
from backendai.portal.loops.repair.overdue_waits import cancel_of_deactivated
from tests.cast import PASSWORD, Cast
from tests.factories import make_image, make_running_session, make_session
from tests.serving.world import make_endpoint

pytestmark = pytest.mark.django_db
Works = Callable[[datetime], object]
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE4DoNUjlIE4ZZfMqfgqHhVZlrqM4jKXJfX3yx6bCwFd"
PORTAL = "portal.example.org"


class Scene:
    """Alice with one of each; a method returns how to find out whether it still does something for her."""

    BY_POWER: ClassVar[dict[str, Callable[[Scene], Works]]]

    def __init__(self, cast: Cast) -> None:
        self.cast, self.alice, self.now = cast, cast.alice, timezone.now()
        make_image(labels={"ai.backend.service-ports": "notes:http:8080,pages:http:8081"})
        self.session = make_running_session(cast.alice, name="hers")
        self.endpoint = make_endpoint(cast.alice)
        self.browser = Client()
        self.browser.post("/login/", {"username": cast.alice.email, "password": PASSWORD})
        self.credential = Credential(login=self.browser.session.session_key or "")

    def sign_in(self) -> Works:
        return lambda now: self.browser.get("/account/").status_code == 200

    def token(self) -> Works:
        bearer = {"Authorization": f"Bearer {create_token(self.alice, 'script')[1]}"}
        return lambda now: Client().get("/api/v1/me/", headers=bearer).status_code == 200

    def computer(self) -> Works:
        request, code = open_request("bai", (), "192.0.2.7", now=self.now)
        allow_request(self.alice, request, 7, now=self.now)

        def gives(now: datetime) -> bool:
            with transaction.atomic():
                is_given = passes(lambda: redeem_device_code(code, now=now))
                transaction.set_rollback(True)
            return is_given

        return gives

    def key_pair(self) -> Works:
        pair, _ = create_key_pair(self.alice, "signs")
        return lambda now: user_by(Credential(key_pair=pair.pk), now)

    def app(self) -> Works:
        entry = make_entry(self.alice, self.session, "notes", self.credential, self.now, portal=PORTAL)
        host = host_of(self.session, "notes")
        cookie = redeem(entry.code, host, self.now)
        return lambda now: passes(lambda: open_by([cookie], host, now))

    def folder(self) -> Works:
        storage = StorageHost.objects.create(name="local", address="http://127.0.0.1:1", is_default=True)
        folder = Folder.objects.create(name="data", host=storage, user=self.alice, status=FolderStatus.READY)
        host = file_host(folder.pk)
        code = make_file_entry(self.alice, folder, self.credential, self.now, portal=PORTAL).code
        cookie = redeem_file_code(code, host, self.now)
        return lambda now: passes(lambda: open_files_by([cookie], host, now))

    def ssh_key(self) -> Works:
        key = add_ssh_key(self.alice, SSH_KEY)
        return lambda now: entrance_for(key.fingerprint, "hers", now)

    def session_key(self) -> Works:
        _, fingerprint = key_of(self.alice, self.session)
        return lambda now: entrance_for(fingerprint, "work", now)

    def invitation(self) -> Works:
        Membership.objects.filter(user=self.alice).update(role=Membership.Role.ADMIN)
        _, text = invite(self.alice, self.session.project, Invitee("new@example.com"), now=self.now)
        return lambda now: passes(lambda: open_invitation(digest_of(text), now=now))

    def public_app(self) -> Works:
        change_site(self.cast.dana, {"public_apps": True}, now=self.now)
        open_to_everybody(self.alice, self.session, "pages", now=self.now)
        return lambda now: public_app_at(host_of(self.session, "pages"), now)

    def shared_session(self) -> Works:
        share_session(self.session, self.alice, "use", email=self.cast.bob.email, now=self.now)
        return lambda now: ComputeSession.objects.shared_with(self.cast.bob).filter(pk=self.session.pk).exists()

    def serves(self) -> Works:
        return lambda now: not read_table(now).endpoints[self.endpoint.label].is_stopped

    def endpoint_token(self) -> Works:
        create_endpoint_token(self.endpoint, self.alice, "calls")
        return lambda now: read_table(now).endpoints[self.endpoint.label].tokens

    def pending_session(self) -> Works:
        session = make_session(
            self.alice, session_type="batch", startup_command="x", starts_at=self.now + timedelta(days=1)
        )

        def waits(now: datetime) -> bool:
            cancel_of_deactivated(now)
            session.refresh_from_db()
            return session.status == "PENDING"

        return waits

    def run(self) -> Works:
        spec = SessionSpec(image="python", session_type="batch", startup_command="x")
        run, _ = create_run(self.alice, array_of(spec, 2), now=self.now)

        def launches(now: datetime) -> bool:
            run_pipelines(now)
            return ComputeSession.objects.filter(run_id=run.pk).exists()

        return launches


Scene.BY_POWER = {
    "sign-ins": Scene.sign_in,
    "access tokens": Scene.token,
    "allowed computers": Scene.computer,
    "secrets of key pairs": Scene.key_pair,
    "opened apps": Scene.app,
    "opened folders": Scene.folder,
    "SSH keys": Scene.ssh_key,
    "SSH keys of sessions": Scene.session_key,
    "invitations": Scene.invitation,
    "public apps": Scene.public_app,
    "shared sessions": Scene.shared_session,
    "endpoints": Scene.serves,
    "tokens of endpoints": Scene.endpoint_token,
    "pending sessions": Scene.pending_session,
    "runs": Scene.run,
}


def passes(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except (Denied, UserError):
        return False
    return True


def test_a_deactivation_takes_away_all_that_acts_for_a_person(cast: Cast, settings: LazySettings) -> None:
    scene = Scene(cast)
    assert list(Scene.BY_POWER) == [str(power.name) for power in POWERS]
    works = {name: make(scene) for name, make in Scene.BY_POWER.items()}
    assert [str(power.name) for power, _ in powers_of(cast.alice, scene.now)] == list(Scene.BY_POWER)
    assert {name for name, ask in works.items() if name != "runs" and not ask(scene.now)} == set()
    set_active(cast.dana.pk, cast.alice, False, now=scene.now)
    alice = User.objects.get(pk=cast.alice.pk)
    assert {name for name, ask in works.items() if ask(timezone.now())} == set()
    told = AuditEntry.objects.get(action="user.deactivate").details
    assert set(told["acted"]) == set(Scene.BY_POWER)
    set_active(cast.dana.pk, alice, True, now=timezone.now())
    again = {name for name, ask in works.items() if ask(timezone.now())}
    assert again == {str(power.name) for power in POWERS if power.restored}


# Relations to a person whose rows do nothing for them, and ways to sign in, which are refused.
RECORDS = {
    "account.EmailAddress.user", "accounts.BootstrapScript.user", "accounts.Dotfile.user", "accounts.Membership.user",
    "accounts.Preference.user", "accounts.Project.members", "accounts.StoredAnswer.user",
    "activity.AccessNotice.owner", "activity.AuditEntry.actor",
    "activity.BackgroundJob.owner", "activity.NoticeChoice.user", "admin.LogEntry.user", "catalog.Image.owner",
    "cluster.SiteSetting.changed_by",
    "compute.HomeKeep.user", "compute.ImageCommit.owner", "compute.LaunchRecord.owner", "compute.SessionNotice.owner",
    "compute.ComputeSession.launched_by", "compute.SessionShare.used_by",
    "compute.SessionShare.user", "mfa.Authenticator.user", "serving.EndpointNotice.owner",
    "serving.EndpointToken.created_by", "serving.Revision.created_by", "socialaccount.SocialAccount.user",
    "storage.Folder.created_by", "storage.Folder.user", "storage.FolderGrant.created_by", "storage.FolderGrant.user",
    "templates.Template.owner", "templates.TemplateVersion.author", "usage.UsageBucket.user",
    "cluster.JoinToken.created_by",  # a key of the site: it lets agents join, not the person
}  # fmt: skip


def test_every_relation_to_a_person_is_on_the_list_or_known_as_a_record() -> None:
    found = set()
    for model in apps.get_models():
        for field in model._meta.get_fields():
            is_own: Any = not field.auto_created or field.concrete
            if is_own and field.is_relation and field.related_model is User:
                found.add(f"{model._meta.label}.{field.name}")
    listed = {f"{power.model}.{power.person}" for power in POWERS if "__" not in power.person}
    assert found == listed | RECORDS
