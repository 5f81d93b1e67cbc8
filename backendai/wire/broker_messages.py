"""How a node gets its account at the broker."""

from __future__ import annotations

from pydantic import Field

from backendai.wire.fields import Message, Order


class BrokerUp(Message):
    """A node asks for its account at the broker: it made the password itself, and tells its SHA-256 only."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class BrokerDown(Order):
    """Where the broker is (empty: work by sync alone), and the name of the node's account there. Without a name the
    broker has no accounts, and the address holds whatever password all nodes share."""

    url: str = ""
    username: str = ""
