"""Messages by which an agent gets its account at the broker."""

from __future__ import annotations

from pydantic import Field

from backendai.base.wire.fields import Message, Order


class BrokerUp(Message):
    """An agent's request for an account at the broker. ``digest``: the SHA-256 of the password that the agent has
    made."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class BrokerDown(Order):
    """The broker's address and the agent's user name. If the address is empty, the agent relies on syncs alone. Without
    a user name, the broker has no accounts, and the address contains the password that all agents share."""

    url: str = ""
    username: str = ""
