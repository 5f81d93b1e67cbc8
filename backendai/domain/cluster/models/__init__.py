"""Resource groups, their agents, and the tokens with which agents join."""

from backendai.domain.cluster.models.groups import (
    DEFAULT_SELECTION,
    Agent,
    DatabaseEpoch,
    JoinToken,
    PassLease,
    Reachability,
    ResourceGroup,
    default_sequence,
    default_session_types,
)
from backendai.domain.cluster.models.idle import IdleBinding, IdleChecker
from backendai.domain.cluster.models.site import Announcement, SiteSetting, SlotType

__all__ = [
    "DEFAULT_SELECTION",
    "Agent",
    "Announcement",
    "DatabaseEpoch",
    "IdleBinding",
    "IdleChecker",
    "JoinToken",
    "PassLease",
    "Reachability",
    "ResourceGroup",
    "SiteSetting",
    "SlotType",
    "default_sequence",
    "default_session_types",
]
