"""The kinds of scaling rules, by the metric that they look at. A new kind is a class, and its place in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.serving.measures import Reading, Span, counts_of, quantile

if TYPE_CHECKING:
    from backendai.domain.serving.models import AutoScalingRule

_LONGEST_QUERY = 1000
_QUERY_FRESH = timedelta(seconds=60)  # four times what lies between two questions to Prometheus


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of an endpoint: what its proxies counted lately (``spans``), its ready replicas, and how much these
    use of their accelerators, in per cent (None: not known, or no rule looks at it)."""

    readings: Sequence[Reading]
    spans: Sequence[Span]
    ready: int
    gpu: float | None
    now: datetime


class RuleKind:
    """A kind of scaling rules. ``label``: its metric in reasons and REST; ``title``: in forms. ``needs_queue``: a rule
    raises the number only while requests wait. ``reads_accelerators``: it needs ``Measured.gpu``."""

    name: str
    label: str
    title: Message
    needs_queue = False
    reads_accelerators = False
    has_query = False

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        """Return the metric now; None: not known."""
        raise NotImplementedError

    def check_query(self, query: str) -> None:
        """Raise UserError for a query that a rule of this kind cannot have."""
        if query:
            text = Message("Only rules by Prometheus have a query: leave it empty.")
            raise UserError(text, field="query", code="invalid-query")

    def is_offered_to(self, user: User) -> bool:
        """Return whether the form offers this kind to the user."""
        return True


class Latency(RuleKind):
    name, label = "latency", "seconds to the answer, 95th percentile"
    title = Message("Seconds to the answer, 95th percentile")

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        return quantile(counts_of(measured.spans), 0.95)


class Rate(RuleKind):
    name, label = "rate", "requests per second and replica"
    title = Message("Requests per second and replica")

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        rates = [one.requests / one.seconds for one in measured.spans]
        return sum(rates) / max(measured.ready, 1) if rates else None


class Queue(RuleKind):
    name, label = "queue", "requests that wait for a replica"
    title = Message("Requests that wait")

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        queued = {one.proxy: float(one.queued) for one in sorted(measured.readings, key=lambda one: one.at)}
        return sum(queued.values()) if measured.spans else None


class Accelerators(RuleKind):
    name, label = "gpu", "use of the accelerators in per cent"
    title = Message("Use of the accelerators in per cent")
    needs_queue = True  # an accelerator is fully used by one long request, too
    reads_accelerators = True

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        return measured.gpu


class Prometheus(RuleKind):
    name, label = "prometheus", "value of a Prometheus query"
    title = Message("Value of a Prometheus query")
    has_query = True

    def value(self, rule: AutoScalingRule, measured: Measured) -> float | None:
        """Return the last value of the rule's query; None for one that is too old to act on."""
        return rule.value if rule.value_at and measured.now - rule.value_at <= _QUERY_FRESH else None

    def check_query(self, query: str) -> None:
        if not settings.PROMETHEUS_URL:
            text = Message("This site has no Prometheus: its administrator can name one with BACKENDAI_PROMETHEUS_URL.")
            raise UserError(text, field="metric", code="no-prometheus")
        if not query.strip() or not query.isprintable() or len(query) > _LONGEST_QUERY:
            text = Message("Write a query of at most {most} characters in one line.", most=_LONGEST_QUERY)
            raise UserError(text, field="query", code="invalid-query")

    def is_offered_to(self, user: User) -> bool:
        return bool(settings.PROMETHEUS_URL) and user.is_superadmin


RULE_KINDS: dict[str, RuleKind] = {
    kind.name: kind for kind in (Latency(), Rate(), Queue(), Accelerators(), Prometheus())
}


def metric_choices() -> list[tuple[str, str]]:
    """Return the name and label of each kind, for fields of models and REST."""
    return [(kind.name, kind.label) for kind in RULE_KINDS.values()]
