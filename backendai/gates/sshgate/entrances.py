"""Who comes with which key, and what is behind the name that they ask for. Asks the database, so it blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backendai.base.core.durations import describe_duration
from backendai.base.core.errors import UserError
from backendai.base.core.names import FOLDERS
from backendai.domain.accounts.models import SshKey, User
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.accounts.sign_in.second_factors import is_required_of
from backendai.domain.activity.request_facts import RequestFacts, within_request
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession, Kernel, SessionSshKey
from backendai.domain.compute.querysets import SessionQuerySet
from backendai.domain.compute.services.launching.system_sessions import left_out, open_folders
from backendai.domain.compute.services.requests.mounts import MOST_MOUNTS
from backendai.domain.compute.status import Status
from backendai.gates.gateways.reach import reach
from backendai.gates.gateways.targets import NOBODY, Denied

RECHECK_SECONDS = 2.0  # keys, accounts and sessions that go must cut connections within five
_LONGEST_NAME = 200
_MOST_LISTED = 20
_CONTESTED = (
    "Several accounts have registered this SSH key, so it opens nothing. If it is yours, add it again under SSH keys "
    "on your account page: the message there says how to prove it."
)


@dataclass(frozen=True, slots=True)
class Entrance:
    """A key that was shown (``is_of_session``: one that opens a session alone), its owner, and the kernel behind the
    name. ``kernel_id`` None: there is none, and ``apology`` says so. ``wants_folders``: the folders of its owner were
    asked for, and the session that opens them is still to be found or made. ``notice``: what its clients are told."""

    key_id: UUID
    user_id: UUID
    is_of_session: bool = False
    kernel_id: UUID | None = None
    generation: int = 0
    apology: str = ""
    wants_folders: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class ShellTarget:
    """A kernel that its owner may use now, the gateway and slowness of its agent, and by name the kernels of its
    session with their generations."""

    kernel_id: UUID
    generation: int
    session_id: UUID
    session_name: str
    hostname: str
    gateway_url: str
    owner: str
    neighbours: Mapping[str, tuple[UUID, int]] = field(default_factory=dict)
    has_shell: bool = True
    ends_at: datetime | None = None
    slowness: int = 1
    credential: Credential = NOBODY
    recheck_seconds: float = field(default=RECHECK_SECONDS)

    def is_over(self, now: datetime) -> bool:
        """Return that it has no end of its own."""
        return False


def entrance_for(fingerprint: str, name: str, now: datetime) -> Entrance | None:
    """Return what a key opens under a name; None when nobody has the key. One that several accounts have opens nothing:
    the apology says what to do."""
    key = SshKey.objects.select_related("user").filter(fingerprint=fingerprint).order_by("pk").first()
    session_name, _, hostname = name[:_LONGEST_NAME].partition("+")
    if key is None:
        return _by_session_key(fingerprint, hostname, now)
    if key.is_contested:
        return Entrance(key.pk, key.user_id, apology=_CONTESTED)
    if not key.user.is_active:
        return None
    if is_stale(key.user, now):
        return Entrance(key.pk, key.user_id, apology=_stale())
    if name == FOLDERS:
        return Entrance(key.pk, key.user_id, wants_folders=True)
    sessions = ComputeSession.objects.visible_to(key.user).filter(owner=key.user).live()
    session = sessions.filter(**_named(session_name)).first()
    if session is None:
        return Entrance(key.pk, key.user_id, apology=_no_session(session_name, sessions.order_by("-created_at")))
    return _to_kernel(Entrance(key.pk, key.user_id), session, hostname)


def _by_session_key(fingerprint: str, hostname: str, now: datetime) -> Entrance | None:
    """Return what the own key of a session opens: that session, whatever name is asked for."""
    key = SessionSshKey.objects.select_related("session__owner").filter(fingerprint=fingerprint).first()
    if key is None or not key.session.owner.is_active or key.session.is_terminal:
        return None
    entrance = Entrance(key.pk, key.session.owner_id, is_of_session=True)
    if is_stale(key.session.owner, now):
        return replace(entrance, apology=_stale())
    return _to_kernel(entrance, key.session, hostname)


def is_stale(user: User, now: datetime) -> bool:
    """Return whether this person has to sign in to the portal before keys count again: a key on a disk is one factor,
    and this person has to have two."""
    limit = settings.SSH_FRESH_LOGIN
    if not limit or not is_required_of(user):
        return False
    return user.last_login is None or user.last_login < now - limit


def _stale() -> str:
    lasting = describe_duration(settings.SSH_FRESH_LOGIN)
    return f"Sign in to the portal, then connect again: your SSH keys count for {lasting} after each sign-in."


def _to_kernel(entrance: Entrance, session: ComputeSession, hostname: str) -> Entrance:
    kernels = list(session.kernels.all())
    kernel = next((one for one in kernels if one.hostname == (hostname or kernels[0].hostname)), None)
    if kernel is None:
        names = ", ".join(one.hostname for one in kernels[:_MOST_LISTED])
        return replace(entrance, apology=f"Session {session.name} has no such kernel. It has: {names}.")
    if not Status.RUNNING == session.status == kernel.status:
        return replace(entrance, apology=_not_running(session))
    return replace(entrance, kernel_id=kernel.pk, generation=kernel.generation)


def to_folders(entrance: Entrance) -> Entrance:
    """Return the way to the session that opens the folders of the key's owner, which is made if need be; until it runs
    it is still wanted, and the apology says for what it waits."""
    user = _holder(entrance)
    if user is None:
        return replace(entrance, wants_folders=False, apology="This SSH key does not open your folders any more.")
    try:
        session = open_folders(user, timezone.now())
    except UserError as error:
        return replace(entrance, wants_folders=False, apology=str(error.message))
    found = _to_kernel(replace(entrance, apology=""), session, "")
    if found.kernel_id is None:
        return found
    return replace(found, wants_folders=False, notice=_not_opened(left_out(user, session)))


def open_at(entrance: Entrance, now: datetime) -> ShellTarget:
    """Return the kernel of an entrance, after looking again at key, account and session. Raises Denied."""
    if entrance.kernel_id is None:
        raise Denied("no-session", entrance.apology)
    user = _holder(entrance)
    if user is None:
        raise Denied("signed-out", "This SSH key does not open your sessions any more.")
    kernel = reach(user, "shell", kernel_id=entrance.kernel_id, generation=entrance.generation)
    beside = Kernel.objects.filter(session=kernel.session_id).values_list("hostname", "pk", "generation")
    return ShellTarget(
        kernel.pk,
        kernel.generation,
        kernel.session_id,
        kernel.session.name,
        kernel.hostname,
        kernel.agent.gateway_url if kernel.agent else "",
        user.email,
        {hostname: (pk, generation) for hostname, pk, generation in beside},
        has_shell=kernel.session.kind.has_shell,
        ends_at=kernel.session.ends_at,
        slowness=kernel.agent.slowness if kernel.agent else 1,
    )


def note(entrance: Entrance, session_id: UUID, action: str, address: str, **more: object) -> None:
    """Write the audit entry of a connection from ``address``: by which key; never what was done."""
    keys = SessionSshKey.objects if entrance.is_of_session else SshKey.objects
    fingerprint = keys.filter(pk=entrance.key_id).values_list("fingerprint", flat=True).first() or ""
    with within_request(RequestFacts(address=address)):
        audit(entrance.user_id, action, "session", [session_id], fingerprint=fingerprint, **more)


def _holder(entrance: Entrance) -> User | None:
    people = User.objects.filter(pk=entrance.user_id, is_active=True)
    if entrance.is_of_session:
        found: User | None = people.filter(compute_sessions__ssh_key=entrance.key_id).first()
    else:
        found = people.filter(ssh_keys=entrance.key_id).first()
    return found


def _named(name: str) -> dict[str, object]:
    try:
        return {"pk": UUID(name)}
    except ValueError:
        return {"name": name.replace("\0", "")}


def _no_session(name: str, sessions: SessionQuerySet) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in name[:64])
    own = [f"  {one.name} ({one.get_status_display()})" for one in sessions[:_MOST_LISTED]]
    if not own:
        return f"You have no session {shown!r}, and no other one: launch one in the portal."
    return "\n".join([f"You have no session {shown!r}. Your sessions are:", *own])


def _not_opened(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")
    return f"Not opened here, as one agent has to mount all folders, {MOST_MOUNTS} at most: {shown}"


def _not_running(session: ComputeSession) -> str:
    reason = str(session.status_message or "").strip()
    return f"Session {session.name} is {session.get_status_display()}. {reason}".strip()
