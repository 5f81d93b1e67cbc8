"""Tickets for a file server, signed by the portal: valid for a short time, for one folder with given rights. File
servers have only the public key, so they cannot issue tickets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast
from uuid import UUID

import jwt

from backendai.base.core.errors import PlatformError

NONE, VIEW, EDIT, MANAGE = "none", "view", "edit", "manage"
TicketRights = Literal["view", "edit", "manage"]
_ORDER = (VIEW, EDIT, MANAGE)
LIFETIME_SECONDS = 30
_ALGORITHM = "EdDSA"
_PURPOSE = "folder"


class FolderTicketRefused(PlatformError):
    """The ticket is forged, expired, or for another purpose or storage host."""

    code = "ticket-refused"


@dataclass(frozen=True, slots=True)
class FolderTicket:
    """The right to use one folder of one storage host until ``expires_at`` (epoch seconds).

    ``view`` reads files; ``edit`` also changes them; ``manage`` creates, deletes, clones and measures folders, and only
    the portal gets it. ``version``: the folder's version; a file server rejects an order with an older version than it
    has seen.
    """

    host: str
    folder_id: UUID
    version: int
    rights: TicketRights
    expires_at: float
    account: str = ""  # of the person for whom the portal acts; for logs

    def allows(self, rights: TicketRights) -> bool:
        """Return whether the ticket grants at least these rights."""
        return _ORDER.index(self.rights) >= _ORDER.index(rights)


def sign_folder_ticket(
    private_key: str,
    *,
    host: str,
    folder_id: UUID,
    version: int,
    rights: TicketRights,
    now: float,
    account: str = "",
    lifetime: float = LIFETIME_SECONDS,
) -> str:
    """Return a ticket that the file server of ``host`` accepts for ``lifetime`` seconds from ``now``."""
    claims: dict[str, str | int | float] = {"for": _PURPOSE, "host": host, "folder": str(folder_id), "ver": version}
    claims |= {"rights": rights, "exp": now + lifetime, "account": account}
    return jwt.encode(claims, private_key, algorithm=_ALGORITHM)


def read_folder_ticket(public_key: str, token: str, *, host: str, now: float) -> FolderTicket:
    """Return the ticket's content. Raises FolderTicketRefused if it is forged, expired, or for another purpose or
    host."""
    try:
        claims = jwt.decode(token, public_key, algorithms=[_ALGORITHM], options={"verify_exp": False})
        rights, purpose = str(claims["rights"]), claims["for"]
        ticket = FolderTicket(
            host=str(claims["host"]),
            folder_id=UUID(claims["folder"]),
            version=int(claims["ver"]),
            rights=cast(TicketRights, rights),
            expires_at=float(claims["exp"]),
            account=str(claims.get("account", "")),
        )
    except (jwt.PyJWTError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FolderTicketRefused("The ticket is not valid.") from error
    if now > ticket.expires_at:
        raise FolderTicketRefused("The ticket has expired.")
    if purpose != _PURPOSE or rights not in _ORDER or ticket.host != host:
        raise FolderTicketRefused("The ticket is for another purpose or another storage host.")
    return ticket
