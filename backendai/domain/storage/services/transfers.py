"""Transfers the folders of one person to another, as before an account is purged."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Count, F

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.acting import people_to_act_for
from backendai.domain.accounts.models import User
from backendai.domain.activity.access_notices import notify_of_access
from backendai.domain.activity.services import audit
from backendai.domain.storage.limits import lock_owner
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.services.delivery import deliver
from backendai.domain.storage.status import LIVE, FolderStatus

_LONGEST = 64
_MOST_TRIED = 1000


def live_folders_of(user: User) -> dict[str, int]:
    """Return the numbers of this person's folders by status, without deleted ones."""
    rows = Folder.objects.live().filter(user=user).order_by("status").values_list("status")
    return {status: number for status, number in rows.annotate(number=Count("pk"))}


def refuse_while_owning(user: User) -> None:
    """Raise a Conflict that counts the folders of this person that are not deleted."""
    if live := live_folders_of(user):
        number = sum(live.values())
        raise Conflict(
            "Folders of this person hold data: {number}. Transfer them to another person, or purge them first.",
            number=number,
            code="folders-left",
            folders=live,
        )


def transfer_folders(actor: User, from_user: User, to_user: User, *, now: datetime) -> list[Folder]:
    """Return the folders of one person, which belong to another one from now on, those in the trash included; for
    administrators of both. A name that is taken gets a number. Policies' limits are not checked: data comes first."""
    _check_people(actor, from_user, to_user)
    with transaction.atomic():
        lock_owner(to_user)
        rows = Folder.objects.filter(user=from_user, status__in=sorted(LIVE - {FolderStatus.DELETING}))
        folders = list(rows.select_for_update(of=("self",)).select_related("host", "project__domain").order_by("name"))
        taken = set(Folder.objects.live().filter(user=to_user).values_list("name", flat=True))
        names = {folder.pk: folder.name for folder in folders}
        for folder in folders:
            folder.name = _free(folder.name, taken)
            taken.add(folder.name)
            columns = {"user": to_user, "name": folder.name, "needs_push": True, "version": F("version") + 1}
            Folder.objects.filter(pk=folder.pk).update(**columns)
            details = {"name": folder.name, "from": from_user.email, "to": to_user.email, "was": names[folder.pk]}
            audit(actor.pk, "folder.transfer", "folder", [folder.pk], **details)
        FolderGrant.objects.filter(folder__in=folders, user=to_user).delete()
        if folders and to_user.pk != actor.pk:
            text = Message(
                "{who} made you the owner of the folders of {person}: {number}.",
                who=actor.email,
                person=from_user.email,
                number=len(folders),
            )
            notify_of_access([to_user.pk], ("folders", from_user.pk), from_user.email, text, now=now)
    moved = list(Folder.objects.filter(pk__in=names).select_related("host", "user", "project__domain"))
    for folder in moved:
        deliver(folder, now=now)
    return moved


def _check_people(actor: User, from_user: User, to_user: User) -> None:
    ruled = User.objects.all() if actor.is_superadmin else User.objects.filter(domain=actor.domain_id)
    may = actor.is_superadmin or (actor.role == User.Role.ADMIN and actor.domain_id is not None)
    if not may or ruled.filter(pk__in={from_user.pk, to_user.pk}).count() < len({from_user.pk, to_user.pk}):
        raise NotAllowed("Only administrators of both people may transfer folders.", code="not-allowed")
    if from_user.pk == to_user.pk:
        raise UserError("Name another person: the folders already belong to them.", field="to_user", code="same-person")
    if not people_to_act_for(actor).filter(pk=to_user.pk).exists():
        text = Message("The account of {to_user} is not active.", to_user=to_user.email)
        raise Conflict(text, field="to_user", code="not-active")


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with the first number behind it that makes it free."""
    if name not in taken:
        return name
    for number in range(2, _MOST_TRIED):
        ending = f"-{number}"
        other = name[: _LONGEST - len(ending)] + ending
        if other not in taken:
            return other
    raise Conflict("The new owner has too many folders named {name}.", name=repr(name), code="name-taken")
