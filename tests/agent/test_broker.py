"""How a node gets to the broker: the password is its own, the portal's word decides, and its silence costs nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from backendai.agent.portal.broker import BrokerAccess
from backendai.agent.portal.client import PortalRefused, PortalUnreachable
from backendai.base.wire.broker.messages import BrokerDown, BrokerUp

ADDRESS, SHARED = "redis://broker:6379/0", "redis://:shared@broker:6379/0"


class Door:
    """Answers as it is told, and notes what it was asked."""

    def __init__(self, answer: BrokerDown | Exception) -> None:
        self.answer = answer
        self.asked: list[BrokerUp] = []

    def open_broker(self, up: BrokerUp) -> BrokerDown:
        self.asked.append(up)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


ACCOUNT = BrokerDown(url=ADDRESS, username="d:node:n 1")
AWAY = PortalUnreachable("no answer")


def kept_password(data: Path) -> str:
    return str(json.loads((data / "broker.json").read_text())["password"])


def test_it_makes_its_password_once_for_each_token_and_tells_its_hash_only(tmp_path: Path) -> None:
    door = Door(ACCOUNT)
    address = BrokerAccess(tmp_path, door, token="t").first()
    password = kept_password(tmp_path)
    assert address == f"redis://d%3Anode%3An%201:{password}@broker:6379/0"
    assert len(password) >= 40
    assert door.asked == [BrokerUp(digest=hashlib.sha256(password.encode()).hexdigest())]
    assert BrokerAccess(tmp_path, Door(ACCOUNT), token="t").first() == address
    assert BrokerAccess(tmp_path, Door(AWAY), token="t").first() == address, "the portal need not answer"
    assert password not in BrokerAccess(tmp_path, Door(ACCOUNT), token="renewed").first()
    (tmp_path / "broker.json").write_text("{torn")
    assert BrokerAccess(tmp_path, Door(ACCOUNT), token="t").first() != address


def test_it_asks_again_when_a_connection_breaks_but_not_all_the_time(tmp_path: Path) -> None:
    door, now = Door(BrokerDown(url=SHARED)), [100.0]
    access = BrokerAccess(tmp_path, door, token="t", clock=lambda: now[0])
    assert (access.first(), access.again(), len(door.asked)) == (SHARED, SHARED, 1)
    door.answer, now[0] = ACCOUNT, 111.0
    assert access.again().endswith("@broker:6379/0")
    assert kept_password(tmp_path) in access.again()
    assert len(door.asked) == 2
    door.answer, now[0] = AWAY, 122.0
    assert kept_password(tmp_path) in access.again()


def test_the_address_that_the_node_itself_was_told_goes_before_the_portals(tmp_path: Path) -> None:
    own = "redis://me:secret@other:1/2"
    asked = Door(ACCOUNT)
    access = BrokerAccess(tmp_path, asked, token="t", told=own)
    assert (access.first(), access.again(), asked.asked) == (own, own, [])
    told = BrokerAccess(tmp_path, Door(ACCOUNT), token="t", told="unix:///b.sock").first()
    assert told == f"unix://d%3Anode%3An%201:{kept_password(tmp_path)}@/b.sock"
    assert BrokerAccess(tmp_path, Door(BrokerDown(url=SHARED)), token="t", told="redis://other:1/2").first() == (
        "redis://:shared@other:1/2"
    )
    assert BrokerAccess(tmp_path, Door(BrokerDown()), token="t", told="redis://other:1/2").first() == (
        "redis://other:1/2"
    )


def test_without_a_broker_for_nodes_it_works_by_sync_alone(tmp_path: Path) -> None:
    assert BrokerAccess(tmp_path, Door(BrokerDown()), token="t").first() == ""
    assert BrokerAccess(tmp_path, Door(AWAY), token="t").first() == ""


def test_it_asks_rarely_once_it_was_refused(tmp_path: Path) -> None:
    now = [0.0]
    door = Door(PortalRefused("revoked", status=401))
    access = BrokerAccess(tmp_path, door, token="t", clock=lambda: now[0])
    for second in range(0, 600, 5):
        now[0] = float(second)
        access.again()
    assert len(door.asked) == 2
