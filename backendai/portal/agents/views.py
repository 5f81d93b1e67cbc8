"""The HTTP API for agents. A token gives access to its agent's own kernels only."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DataError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from backendai.base.core.errors import NotFound, UserError
from backendai.base.wire.broker.hints import hint
from backendai.base.wire.broker.messages import BrokerUp
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.base.wire.bundles import BundleDown, BundleUp
from backendai.base.wire.messages import JoinDown, JoinUp, KernelReport, SyncDown, SyncUp
from backendai.base.wire.node_jobs import NodeJobReport
from backendai.base.wire.rates import Rate, take_each
from backendai.base.wire.tickets import public_key_of
from backendai.domain.activity.request_facts import note_for_logs
from backendai.domain.catalog.services import record_images
from backendai.domain.cluster.broker_access import give_broker_access
from backendai.domain.cluster.joining import join_agent
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import kind_named
from backendai.domain.cluster.services import agent_of_token, hold_back, note_refused, record_sync
from backendai.domain.compute.services.agents.kernel_specs import spec_for, specs_for
from backendai.domain.compute.services.agents.node_view import registry_access_for, work_for
from backendai.domain.compute.services.agents.unknown_kernels import note_unknown
from backendai.domain.compute.services.life.reports import ReceivedReport, Verdict, kernel_reported, kernels_reported
from backendai.domain.compute.services.records.logs import LARGEST, save_log, save_logs
from backendai.domain.storage.host_reports import record_host_reports
from backendai.portal.agents.long_polls import look, work_arrives
from backendai.portal.agents.refused import refuse
from backendai.portal.agents.usage import take_usage, take_work

# Agents sync every 5 s; without a broker, while they have work, up to twice a second.
SYNCS, MINUTE, SYNCS_AT_ONCE = 240, 60.0, 60
_TOO_MUCH = frozenset({"too_long", "string_too_long"})


def too_fast(agents: Sequence[Agent], now: datetime) -> dict[UUID, float]:
    """Count one sync of each of these agents. Returns the seconds that agents above the rate have to wait, by agent id.
    One round trip; nothing is limited while Redis is down."""
    rates = [Rate(f"node:{agent.pk}", SYNCS, MINUTE, SYNCS_AT_ONCE) for agent in agents]
    waits = take_each(rates, now=now.timestamp())
    return {agent.pk: wait for agent, wait in zip(agents, waits, strict=True) if wait > 0}


def is_too_much(error: Exception) -> bool:
    """Return whether a message was rejected because it exceeds a size limit."""
    return isinstance(error, ValidationError) and any(one["type"] in _TOO_MUCH for one in error.errors())


logger = logging.getLogger(__name__)

View = Callable[..., HttpResponse]


def node_view(view: View) -> View:
    """Wrap a view: authenticate the agent by its token and turn errors into small JSON responses."""

    @csrf_exempt
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        agent = _agent(request)
        if agent is None:
            return refuse(request)
        note_for_logs(agent=agent.name)
        try:
            return view(request, agent, *args, **kwargs)
        except NotFound as error:
            return _problem(404, error.code, error.message)
        except (UserError, ValueError, DataError) as error:
            logger.warning("agent %s sent what cannot be used: %s", agent.name, error)
            return _problem(400, "invalid-message", str(error)[:500])

    return guarded


@csrf_exempt
@require_http_methods(["POST"])
def join(request: HttpRequest) -> HttpResponse:
    """Register a new agent by its join token."""
    try:
        agent, token = join_agent(JoinUp.model_validate_json(request.body))
    except NotFound as error:
        return _problem(403, error.code, error.message)
    except (UserError, ValidationError) as error:
        return _problem(400, "invalid-message", str(error)[:500])
    answer = JoinDown(
        agent_id=agent.pk,
        name=agent.name,
        token=token,
        deployment=settings.DEPLOYMENT,
        public_key=public_key_of(settings.TICKET_KEY),
    )
    return _answer(answer.model_dump_json(), status=201)


@require_http_methods(["POST"])
@node_view
def broker(request: HttpRequest, agent: Agent) -> HttpResponse:
    """Return an agent's account at the broker; creates the account if it is missing. Agents may ask at any time."""
    message = BrokerUp.model_validate_json(request.body)
    return _answer(give_broker_access(agent, message.digest).model_dump_json())


@csrf_exempt
async def sync(request: HttpRequest) -> HttpResponse:
    """Record an agent's state and return its desired state. ``wait``: if there is no work, the answer is delayed by up
    to that many seconds. 401: unknown token, 429: too many syncs, 422: message too large, 400: invalid message."""
    if request.method != "POST":
        return HttpResponse(status=405)
    status, answer, wait, agent_id = await look(_sync, request)
    idle = isinstance(answer, SyncDown) and not _is_work(answer)
    if wait and idle and agent_id and await work_arrives(agent_id, wait):
        status, answer, _, _ = await look(_sync, request)
    if status == 401:
        return refuse(request)
    return _answer(answer.model_dump_json() if isinstance(answer, SyncDown) else json.dumps(answer), status=status)


@require_http_methods(["GET"])
@node_view
def kernel(request: HttpRequest, agent: Agent, kernel_id: UUID) -> HttpResponse:
    """Return the spec of one kernel that this agent should run."""
    return _answer(spec_for(agent, kernel_id).model_dump_json())


@require_http_methods(["POST"])
@node_view
def report(request: HttpRequest, agent: Agent, kernel_id: UUID) -> HttpResponse:
    """Apply an agent's report about one of its kernels."""
    message = KernelReport.model_validate_json(request.body)
    if message.kernel_id != kernel_id:
        raise UserError("The report is about another kernel.", code="invalid-message")
    return JsonResponse({"applied": kernel_reported(agent, message)})


@require_http_methods(["POST"])
@node_view
def bundle(request: HttpRequest, agent: Agent) -> HttpResponse:
    """Store logs, apply reports and return specs of many kernels. Replaces one request per kernel."""
    message, now = BundleUp.model_validate_json(request.body), timezone.now()
    kept = save_logs(agent, message.logs, now=now)
    verdicts = (
        kernels_reported([ReceivedReport(agent, one) for one in message.reports], now=now) if message.reports else []
    )
    specs = specs_for(dict.fromkeys(message.specs, agent), also_running=True)
    applied = [None if one in (Verdict.FOREIGN, Verdict.EARLY) else one is Verdict.APPLIED for one in verdicts]
    return _answer(BundleDown(specs=list(specs.values()), kept=kept, applied=applied).model_dump_json())


@require_http_methods(["PUT"])
@node_view
def log(request: HttpRequest, agent: Agent, kernel_id: UUID) -> HttpResponse:
    """Store the output of an ended kernel; 413 if the output is longer than ``LARGEST`` bytes."""
    if int(request.headers.get("Content-Length") or 0) > LARGEST:
        return _problem(413, "too-long", f"A log may have at most {LARGEST} bytes.")
    generation = int(request.GET.get("generation", "0"))
    save_log(agent, kernel_id, generation, request.body, truncated=request.GET.get("truncated") == "1")
    return HttpResponse(status=204)


@require_http_methods(["GET"])
@node_view
def registry(request: HttpRequest, agent: Agent, kernel_id: UUID) -> HttpResponse:
    """Return the registry account for the image of a kernel that starts on this agent."""
    return _secret(registry_access_for(agent, kernel_id).model_dump_json())


@require_http_methods(["GET"])
@node_view
def job(request: HttpRequest, agent: Agent, kind: str, job_id: UUID) -> HttpResponse:
    """Return the work of one job of this agent, which sometimes contains a registry account."""
    return _secret(kind_named(kind).spec(agent, job_id).model_dump_json())


@require_http_methods(["POST"])
@node_view
def job_report(request: HttpRequest, agent: Agent, kind: str, job_id: UUID) -> HttpResponse:
    """Apply an agent's report about one of its jobs. The response says whether the portal still wants the job."""
    message = NodeJobReport.model_validate_json(request.body)
    if (message.kind, message.job_id) != (kind, job_id):
        raise UserError("The report is about another job.", code="invalid-message")
    return JsonResponse({"wanted": kind_named(kind).heard(agent, message, now=timezone.now())})


def _sync(request: HttpRequest) -> tuple[int, SyncDown | dict[str, str], float, UUID | None]:
    agent = _agent(request)
    if agent is None:
        return 401, {}, 0.0, None
    if wait := too_fast([agent], timezone.now()).get(agent.pk):
        return 429, {"code": "too-fast", "detail": f"Too many syncs. Try again in {wait:.1f} s."}, 0.0, None
    try:
        message, was_away = SyncUp.model_validate_json(request.body), agent.status != Agent.Status.ALIVE
        changed = record_sync(agent, message, now=timezone.now())
        if message.images is not None:
            record_images(agent, message.images, message.images_digest)
        changed = bool(record_host_reports([(agent, message.storage_hosts)], now=timezone.now())) or changed
    except (UserError, ValidationError, DataError) as error:
        logger.warning("agent %s sent what cannot be used: %s", agent.name, error)
        note_refused({agent.pk: _in_short(error)}, now=timezone.now())
        status = 422 if is_too_much(error) else 400
        return status, {"code": "invalid-message", "detail": str(error)[:500]}, 0.0, None
    want_images = message.images is None and message.images_digest != agent.images_digest
    if changed or message.images is not None:
        hint("controller.schedule_group", agent.resource_group_id, queue=CONTROL_QUEUE)
    kept = {(one.kernel_id, one.generation) for one in message.unknown if one.kept}
    answer, now = work_for(agent, message.kernels, want_images=want_images, kept=kept), timezone.now()
    note_unknown(agent, answer, message.unknown, now=now)
    take_usage([(agent, message)], now)
    take_work([(agent, message)], now)
    if was_away and answer.unwanted:
        hold_back([agent.pk])
    return 200, answer, message.wait, agent.pk


def _in_short(error: Exception) -> str:
    """Return the first invalid field and its error. The whole error text can be pages long."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"
    return str(error)


def _is_work(answer: SyncDown) -> bool:
    return bool(answer.stop or answer.unwanted or any(not kernel.started for kernel in answer.desired))


def _agent(request: HttpRequest) -> Agent | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return agent_of_token(token) if scheme == "Node" and token else None


def _answer(body: str, *, status: int = 200) -> HttpResponse:
    return HttpResponse(body, content_type="application/json", status=status)


def _secret(body: str) -> HttpResponse:
    answer = _answer(body)
    answer["Cache-Control"] = "no-store"
    return answer


def _problem(status: int, code: str, detail: str) -> HttpResponse:
    return JsonResponse({"code": code, "detail": detail}, status=status)
