"""Inference endpoints, what they run, what they are measured by, and what was decided about them."""

from backendai.domain.serving.models.endpoints import (
    MOST_REPLICAS,
    AutoScalingRule,
    DesiredState,
    Endpoint,
    EndpointToken,
    Metric,
    Replica,
    Revision,
    State,
)
from backendai.domain.serving.models.notices import EndpointNotice
from backendai.domain.serving.models.readings import ProxyReading, ReplicaSight, ScalingRecord, ServingProxy

__all__ = [
    "MOST_REPLICAS",
    "AutoScalingRule",
    "DesiredState",
    "Endpoint",
    "EndpointNotice",
    "EndpointToken",
    "Metric",
    "ProxyReading",
    "Replica",
    "ReplicaSight",
    "Revision",
    "ScalingRecord",
    "ServingProxy",
    "State",
]
