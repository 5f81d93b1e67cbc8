"""The node API for a process that speaks for many nodes: one call, a fixed number of statements.

Each node has its own token and reaches its own kernels only; what is wrong with one is answered to that one.
"""

from __future__ import annotations

import gzip
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import DataError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from backendai.base.core.errors import UserError
from backendai.base.db.bulk import among
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.messages import SyncUp
from backendai.domain.catalog.services import record_images_of
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.services import agent_of_token, agents_of_tokens, hold_back, note_refused, record_syncs
from backendai.domain.compute.models import Kernel, KernelLog
from backendai.domain.compute.services.agents.node_view import WorkRequest, work_for_each
from backendai.domain.compute.services.agents.unknown_kernels import note_unknown
from backendai.domain.compute.services.life.reports import ReceivedReport, Verdict, kernels_reported
from backendai.domain.storage.host_reports import record_host_reports
from backendai.portal.agents.usage import take_usage
from backendai.portal.agents.views import is_too_much, too_fast
from bench.many_agents.messages import FleetAnswer, FleetDown, FleetNode, FleetUp, KernelLogTail

logger = logging.getLogger(__name__)

_UNKNOWN = FleetAnswer(status=401, code="unknown-node", detail="The node's token is not known here.")

_TOO_FAST = FleetAnswer(status=429, code="too-fast", detail="Too many syncs. Try again in a few seconds.")


class _Heard(NamedTuple):
    """A node that is known here, and its place in the call."""

    place: int
    agent: Agent
    node: FleetNode


class _PackedLog(NamedTuple):
    """The end of a kernel's output as it is kept, and which node says it of which generation."""

    agent: Agent
    tail: KernelLogTail
    content: bytes
    size: int


_Applied = dict[int, list[bool]]  # by place
_Refused = dict[int, str]


@csrf_exempt
@require_http_methods(["POST"])
def fleet(request: HttpRequest) -> HttpResponse:
    """Take what many nodes say and answer each. The header bears the token of one of them: who has none is not read."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Node" or not token or agent_of_token(token) is None:
        return JsonResponse({"code": _UNKNOWN.code, "detail": _UNKNOWN.detail}, status=401)
    try:
        message = FleetUp.model_validate_json(request.body)
    except ValidationError as error:
        status = 422 if is_too_much(error) else 400
        return JsonResponse({"code": "invalid-message", "detail": str(error)[:500]}, status=status)
    answer = answer_fleet(message, now=timezone.now())
    return HttpResponse(answer.model_dump_json(), content_type="application/json")


def answer_fleet(message: FleetUp, *, now: datetime) -> FleetDown:
    """Return the answers to many nodes after taking in what they say, in the order in which a node alone would say it:
    logs, reports, sync."""
    agents = agents_of_tokens({node.token for node in message.nodes})
    fast = too_fast([agents[node.token] for node in message.nodes if node.up and node.token in agents], now)
    known = [
        _Heard(place, agents[node.token], node)
        for place, node in enumerate(message.nodes)
        if node.token in agents and agents[node.token].pk not in fast
    ]
    away = {one.agent.pk for one in known if one.agent.status != Agent.Status.ALIVE}
    applied, refused = _take_words(known, now)
    refused |= _take_syncs([one for one in known if one.place not in refused], now)
    served = [one for one in known if one.place not in refused]
    answers, untidy = [_UNKNOWN] * len(message.nodes), list[UUID]()
    for place, node in enumerate(message.nodes):
        if node.token in agents and agents[node.token].pk in fast:
            answers[place] = _TOO_FAST
    note_refused({agents[message.nodes[place].token].pk: detail for place, detail in refused.items()}, now=now)
    for place, detail in refused.items():
        logger.warning("node %s sent what cannot be used: %s", agents[message.nodes[place].token].name, detail)
        answers[place] = FleetAnswer(status=400, code="invalid-message", detail=detail[:500])
    for one, work in zip(served, work_for_each([_asking(one) for one in served]), strict=True):
        verdicts = applied.get(one.place, [])
        if work.down:
            note_unknown(one.agent, work.down, one.node.up.unknown if one.node.up else (), now=now)
            if work.down.unwanted and one.agent.pk in away:
                untidy.append(one.agent.pk)
        answers[one.place] = FleetAnswer(down=work.down, applied=verdicts, start=work.start, stop=work.stop)
    hold_back(untidy)
    return FleetDown(nodes=answers)


def _take_words(some: Sequence[_Heard], now: datetime) -> tuple[_Applied, _Refused]:
    """Keep logs and apply reports. What the database cannot hold falls on the node that said it."""
    try:
        return _write_words(some, now), {}
    except DataError:
        applied, refused = _Applied(), _Refused()
        for one in some:
            try:
                applied |= _write_words([one], now)
            except DataError as error:
                refused[one.place] = str(error)
        return applied, refused


def _write_words(some: Sequence[_Heard], now: datetime) -> _Applied:
    said = [(one.place, ReceivedReport(one.agent, report)) for one in some for report in one.node.reports]
    texts = [(one.agent, tail, tail.text.encode()) for one in some for tail in one.node.logs]
    logs = [_PackedLog(agent, tail, gzip.compress(text, 5), len(text)) for agent, tail, text in texts]
    applied = defaultdict[int, list[bool]](list)
    with transaction.atomic():
        _save_logs(logs, now=now)
        for (place, _), verdict in zip(said, kernels_reported([word for _, word in said], now=now), strict=True):
            applied[place].append(verdict is Verdict.APPLIED)
    return applied


def _save_logs(logs: Sequence[_PackedLog], *, now: datetime) -> None:
    """Keep the ends of many kernels' outputs, in two statements; those of foreign kernels and of older generations are
    passed over."""
    told = {log.tail.kernel_id: log for log in logs}
    if not told:
        return
    kernels = Kernel.objects.filter(pk__in=among(list(told))).order_by()
    rows = []
    for pk, agent_id, generation in kernels.values_list("pk", "agent_id", "generation"):
        log = told[pk]
        if agent_id == log.agent.pk and generation == log.tail.generation:
            is_cut = log.tail.truncated
            rows.append(KernelLog(kernel_id=pk, content=log.content, size=log.size, is_truncated=is_cut, saved_at=now))
    KernelLog.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["kernel"],
        update_fields=["content", "size", "is_truncated", "saved_at"],
    )


def _take_syncs(some: Sequence[_Heard], now: datetime) -> _Refused:
    """Write what nodes say about themselves; a pass follows where they have something new to offer."""
    syncs = [(one, one.node.up) for one in some if one.node.up is not None]
    news, wrong = record_syncs([(one.agent, up) for one, up in syncs], now=now)
    refused = {one.place: wrong[one.agent.pk] for one, _ in syncs if one.agent.pk in wrong}
    alike = defaultdict[str, list[tuple[_Heard, SyncUp]]](list)
    for one, up in syncs:
        if up.images is not None and one.place not in refused:
            alike[up.model_dump_json(include={"images", "images_digest"})].append((one, up))
    for told in alike.values():
        refused |= _take_images(told)
        news |= {one.agent.pk for one, _ in told if one.place not in refused}
    heard = [(one.agent, up.storage_hosts) for one, up in syncs if one.place not in refused]
    news |= {agent.pk for agent in record_host_reports(heard, now=now)}
    take_usage([(one.agent, up) for one, up in syncs if one.place not in refused], now)
    for group_id in sorted({one.agent.resource_group_id for one, _ in syncs if one.agent.pk in news}):
        hint("controller.schedule_group", group_id, queue=CONTROL_QUEUE)
    return refused


def _take_images(told: Sequence[tuple[_Heard, SyncUp]]) -> _Refused:
    """Write the images of nodes that have the same ones."""
    up = told[0][1]
    try:
        record_images_of([one.agent for one, _ in told], up.images or [], up.images_digest)
    except (UserError, DataError) as error:
        return {one.place: str(error) for one, _ in told}
    return {}


def _asking(one: _Heard) -> WorkRequest:
    up = one.node.up
    known = frozenset(one.node.known)
    if up is None:
        return WorkRequest(one.agent, known=known)
    want_images = up.images is None and up.images_digest != one.agent.images_digest
    kept = frozenset((told.kernel_id, told.generation) for told in up.unknown if told.kept)
    return WorkRequest(one.agent, up.kernels, kept, want_images, known)
