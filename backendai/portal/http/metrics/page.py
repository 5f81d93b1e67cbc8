"""``/metrics``: the state of the platform for Prometheus, read from the database when it is scraped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from backendai.base.core.version import VERSION
from backendai.base.process.metrics_access import TEXT, Scrapers
from backendai.portal.http.metrics import agents, parts, sessions
from backendai.portal.http.metrics.families import Gauge, Given
from backendai.portal.http.metrics.requests import collect_requests


def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics for BACKENDAI_METRICS_TOKEN or a visitor of BACKENDAI_METRICS_NETWORKS. Raises Http404."""
    scrapers = Scrapers(settings.METRICS_TOKEN, tuple(settings.METRICS_NETWORKS))
    if not scrapers.allows(request.headers.get("Authorization", ""), request.META.get("REMOTE_ADDR", "")):
        raise Http404
    registry = CollectorRegistry(auto_describe=False)
    families = list(state(timezone.now()))
    registry.register(Given([one for one in families if isinstance(one, Metric)]))
    collect_requests(registry)
    text = "".join(line for one in families if isinstance(one, Gauge) for line in one.lines())
    return HttpResponse(text.encode() + generate_latest(registry), content_type=TEXT)


def state(now: datetime) -> Iterator[Gauge | Metric]:
    """Yield sessions, agents, storage, endpoints and loops, in twelve queries; without a database, its absence.

    Labels name resource groups, agents, slots, storage hosts and codes, never people, sessions or endpoints: their
    number is bounded.
    """
    yield Gauge("backendai_build_info", "Version of the portal; always 1.", ("version",), [((VERSION,), 1)])
    yield from parts.of_parts(seconds := parts.answer_times())
    if seconds["database"] is None:
        return
    yield from sessions.of_sessions(now)
    yield from agents.of_agents(now)
    yield from parts.of_loops(now)
    yield from parts.of_storage()
    yield from parts.of_endpoints(now)
    yield from parts.of_forecasts()
