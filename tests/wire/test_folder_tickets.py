"""Tickets for file servers: one folder of one host, certain rights, half a minute."""

from __future__ import annotations

from uuid import uuid4

import pytest

from backendai.base.wire.folder_tickets import FolderTicketRefused, read_folder_ticket, sign_folder_ticket
from backendai.base.wire.tickets import new_private_key, public_key_of, sign_ticket

FOLDER = uuid4()
KEY = new_private_key()
NOW = 1_000_000.0


def signed(**over: object) -> str:
    said = {"host": "local", "folder_id": FOLDER, "version": 3, "rights": "edit", "now": NOW, "account": "alice"} | over
    return sign_folder_ticket(KEY, **said)  # type: ignore[arg-type]


def read(token: str, *, key: str = KEY, host: str = "local", now: float = NOW) -> object:
    return read_folder_ticket(public_key_of(key), token, host=host, now=now)


def test_a_ticket_tells_folder_version_rights_and_account() -> None:
    ticket = read_folder_ticket(public_key_of(KEY), signed(), host="local", now=NOW + 29)
    assert (ticket.folder_id, ticket.version, ticket.rights, ticket.account) == (FOLDER, 3, "edit", "alice")


@pytest.mark.parametrize(("held", "wanted", "allowed"), [("view", "edit", False), ("edit", "view", True)])
def test_rights_include_lesser_ones(held: str, wanted: str, allowed: bool) -> None:
    ticket = read_folder_ticket(public_key_of(KEY), signed(rights=held), host="local", now=NOW)
    assert ticket.allows(wanted) is allowed  # type: ignore[arg-type]


@pytest.mark.parametrize("over", [{"key": new_private_key()}, {"host": "other"}, {"now": NOW + 31}])
def test_a_forged_a_foreign_and_an_expired_ticket_are_refused(over: dict[str, object]) -> None:
    with pytest.raises(FolderTicketRefused):
        read(signed(), **over)  # type: ignore[arg-type]


def test_unknown_rights_and_a_kernels_ticket_are_refused() -> None:
    of_kernel = sign_ticket(KEY, kernel_id=uuid4(), generation=1, purpose="files", now=NOW)
    for token in (signed(rights="all"), of_kernel, "nonsense"):
        with pytest.raises(FolderTicketRefused):
            read(token)
