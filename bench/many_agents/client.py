"""The portal as a process sees it that speaks for many nodes."""

from __future__ import annotations

from pydantic import ValidationError

from backendai.agent.portal.client import PortalClient, PortalUnreachable
from bench.many_agents.messages import FleetDown, FleetUp

_SECONDS = 60.0


class FleetClient(PortalClient):
    """The portal over HTTP: one call for all nodes."""

    def fleet(self, up: FleetUp) -> FleetDown:
        """Say what the nodes have to say; returns the answers in their order. The first node's token opens the door.

        Raises PortalUnreachable, and PortalRefused with status 401 when the first node is not known any more.
        """
        self._headers = {"Authorization": f"Node {up.nodes[0].token}"}
        body = self._send("POST", "/fleet", up.model_dump_json(exclude_defaults=True), seconds=_SECONDS)
        try:
            down = FleetDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable(f"The portal's answer makes no sense: {error}") from error
        if len(down.nodes) != len(up.nodes):
            raise PortalUnreachable(f"The portal answered {len(down.nodes)} of {len(up.nodes)} nodes.")
        return down
