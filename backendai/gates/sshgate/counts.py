"""What an SSH gate counts for its metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

registry = CollectorRegistry()
connections = Gauge("backendai_ssh_connections", "Open connections that have signed in.", registry=registry)
sign_ins = Counter("backendai_ssh_sign_ins", "Connections that have signed in.", registry=registry)
refused = Counter("backendai_ssh_refused", "Connections that tried to sign in and did not.", registry=registry)
attempts = Counter("backendai_ssh_attempts", "Connections that were taken.", registry=registry)
_bytes = Counter(
    "backendai_ssh_bytes",
    "Bytes of channels, received from clients and sent to them.",
    ("direction",),
    registry=registry,
)
received_bytes, sent_bytes = _bytes.labels("received").inc, _bytes.labels("sent").inc
