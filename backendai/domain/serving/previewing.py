"""What an endpoint would take, and how many of its replicas find room now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.compute.services.requests.check import Checked
from backendai.domain.planning.explain import Explanation
from backendai.domain.planning.preview import preview
from backendai.domain.serving.services.checks import agents_that_serve, check_endpoint, session_spec
from backendai.domain.serving.spec import EndpointSpec


@dataclass(frozen=True, slots=True)
class EndpointPreview:
    """``room``: what the next pass of the scheduler would do with ``maximum`` replicas."""

    checked: Checked
    maximum: int
    at_most: Slots
    room: Explanation

    @property
    def starts(self) -> int:
        """How many replicas find room now."""
        return self.room.started

    @property
    def each(self) -> str:
        """The amounts of one replica in words."""
        return self.checked.total.describe()

    @property
    def all(self) -> str:
        """The amounts of all replicas in words."""
        return self.at_most.describe()


def preview_endpoint(user: User, spec: EndpointSpec, *, now: datetime) -> EndpointPreview:
    """Return what would become of such an endpoint; writes nothing. Raises the UserErrors of its creation."""
    checked = check_endpoint(user, spec)
    replica = session_spec(
        spec.revision,
        project=spec.project,
        resource_group=spec.resource_group,
        agents=agents_that_serve(checked.group),
    )
    room = preview(user, replica, now=now, copies=spec.maximum)
    return EndpointPreview(checked, spec.maximum, checked.total * spec.maximum, room)
