"""Inference endpoints, what they run, what they are measured by, and what was decided about them."""

from backendai.domain.serving.models.endpoints import (
    MOST_REPLICAS,
    AutoScalingRule,
    Endpoint,
    EndpointNotice,
    EndpointToken,
    Replica,
    Revision,
)
from backendai.domain.serving.models.readings import ProxyReading, ReplicaSight, ScalingRecord, ServingProxy
from backendai.scheduler.serving.snapshot import DesiredState
from backendai.scheduler.serving.snapshot import ReplicaState as State

__all__ = [
    "MOST_REPLICAS",
    "AutoScalingRule",
    "DesiredState",
    "Endpoint",
    "EndpointNotice",
    "EndpointToken",
    "ProxyReading",
    "Replica",
    "ReplicaSight",
    "Revision",
    "ScalingRecord",
    "ServingProxy",
    "State",
]
