"""Keeps the values of the queries that scaling rules look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from backendai.base.core.messages import Message
from backendai.domain.serving.models import AutoScalingRule, Endpoint
from backendai.domain.serving.prometheus import NoValue
from backendai.domain.serving.rule_kinds import Prometheus

_MOST_QUERIES, _AT_ONCE = 200, 8
Answer = float | Message


def queries_of_rules() -> dict[int, str]:
    """Return the queries of all active rules by the rule's key, the longest unasked first, at most 200. One query."""
    rules = AutoScalingRule.objects.filter(
        metric=Prometheus.name, is_active=True, endpoint__in=Endpoint.objects.unfinished()
    )
    rows = rules.order_by("value_at", "pk").values_list("pk", "query", "endpoint__name", "endpoint__project__name")
    return {pk: filled(query, endpoint, project) for pk, query, endpoint, project in rows[:_MOST_QUERIES]}


def filled(query: str, endpoint: str, project: str) -> str:
    """Return the query with the names of its endpoint and project for ``$endpoint`` and ``$project``."""
    for name, value in (("$endpoint", endpoint), ("$project", project)):
        query = query.replace(name, value.replace("\\", r"\\").replace('"', r"\""))
    return query


def ask_all(queries: Mapping[int, str], value_of: Callable[[str], float]) -> dict[int, Answer]:
    """Return the answer to each query; equal ones are asked once, eight at the same time. Takes seconds."""

    def ask(query: str) -> Answer:
        try:
            return value_of(query)
        except NoValue as error:
            return error.message

    different = sorted(set(queries.values()))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = dict(zip(different, threads.map(ask, different), strict=True))
    return {pk: answers[query] for pk, query in queries.items()}


def write_values(answers: Mapping[int, Answer], now: datetime) -> None:
    """Write the answers to their rules. Two statements."""
    rules = AutoScalingRule.objects.in_bulk(answers)
    for pk, rule in rules.items():
        answer = answers[pk]
        rule.value_at = now
        rule.value, rule.trouble = (None, answer) if isinstance(answer, Message) else (answer, Message(""))
    AutoScalingRule.objects.bulk_update(rules.values(), ["value", "value_at", "trouble"])
