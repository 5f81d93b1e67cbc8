"""Runs the repair pass. It repairs lost state, and ends everything that has exceeded its deadline. Every live state has
a deadline."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F

from backendai.base.wire.broker.accounts import BrokerAway, NoAccounts
from backendai.base.wire.broker.portal_marks import swap_mark
from backendai.domain.activity.jobs import delete_old_jobs, give_up_jobs
from backendai.domain.catalog.tags import try_old_ones_again
from backendai.domain.cluster.broker_access import settle_broker_access
from backendai.domain.cluster.epochs import STRANGERS_ARE_REAL, advance_epoch, note_mark, read_mark
from backendai.domain.cluster.node_jobs import follow_jobs
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.public import close_expired_apps
from backendai.domain.compute.services.images.commit_reports import mark_unwanted
from backendai.domain.compute.services.images.own_images import remove_left_tags
from backendai.domain.compute.services.launching.system_sessions import end_unused
from backendai.domain.compute.services.life.draining import end_drained
from backendai.domain.compute.services.life.follow import follow
from backendai.domain.compute.services.life.resuming import resume_displaced
from backendai.domain.compute.services.life.stop_schedules import follow_schedules
from backendai.domain.compute.services.life.stopped_retention import end_long_stopped
from backendai.domain.compute.services.life.stopping import discard_homes
from backendai.domain.compute.services.notices.owners import delete_old_notices, warn_of_ends
from backendai.domain.compute.status import LIVE, UNPLACED
from backendai.domain.forecasts.learning import learn_lengths
from backendai.domain.forecasts.scoring import score_forecasts
from backendai.domain.serving.services.unused import tell_of_unused
from backendai.portal.loops.mails import send_due_mails
from backendai.portal.loops.outages import is_outage, log_failure
from backendai.portal.loops.repair.lost_agents import end_lost_sessions, mark_silent_agents
from backendai.portal.loops.repair.overdue_ends import force_ends
from backendai.portal.loops.repair.overdue_runs import end_runs
from backendai.portal.loops.repair.overdue_starts import end_starts
from backendai.portal.loops.repair.overdue_waits import (
    cancel_of_deactivated,
    cancel_unfulfillable,
    give_up_scheduling,
    sweep_pending,
)
from backendai.portal.loops.repair.reachability import watch_reachability
from backendai.portal.loops.scans import request_scans
from backendai.portal.loops.tags import request_tag_deletions
from backendai.portal.loops.what_ifs import request_what_ifs


def settle_accounts(now: datetime) -> int:
    """Create, correct and delete accounts of agents at the broker; returns how many. 0 while the broker is unreachable
    or has no accounts."""
    try:
        settled = settle_broker_access()
    except (BrokerAway, NoAccounts) as error:
        logger.info("broker accounts stay as they are: %s", error)  # doctor explains the cause
        return 0
    if settled.made:
        logger.info("broker accounts made: %s", ", ".join(settled.made))
    if settled.dropped:
        logger.info("broker accounts taken away: %s", ", ".join(settled.dropped))
    return len(settled.made) + len(settled.dropped)


_MOST_AT_ONCE = 1000


def follow_kernels(now: datetime) -> int:
    """Update the status of up to ``_MOST_AT_ONCE`` sessions that differs from the statuses of all their kernels.
    Returns 0, as most of these sessions are only in transition."""
    apart = ComputeSession.objects.filter(status__in=LIVE - UNPLACED).exclude(kernels__status=F("status"))
    sessions = list(apart.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    if sessions:
        with transaction.atomic():
            follow(sessions, now=now)
    return 0


def watch_for_others(now: datetime) -> int:
    """Write a new mark and compare the previous one with the database's. Without the broker nothing is checked. Returns
    0, as this rule of the repair pass repairs nothing."""
    expected, mark = read_mark(), secrets.token_hex(16)
    try:
        found = swap_mark(mark)
    except BrokerAway as error:
        logger.info("nobody can look for another portal: %s", error)
        return 0
    strangers = note_mark(mark, is_strange=found not in ("", expected))
    if strangers == STRANGERS_ARE_REAL:
        logger.error(
            "another portal with the deployment name %s uses the same broker: stop one of the two", settings.DEPLOYMENT
        )
    return 0


logger = logging.getLogger(__name__)

Rule = Callable[[datetime], int]

RULES: tuple[Rule, ...] = (
    advance_epoch,
    watch_for_others,
    watch_reachability,
    mark_silent_agents,
    end_lost_sessions,
    end_drained,
    resume_displaced,
    end_starts,
    warn_of_ends,
    end_runs,
    end_unused,
    force_ends,
    close_expired_apps,
    cancel_unfulfillable,
    cancel_of_deactivated,
    sweep_pending,
    give_up_scheduling,
    follow_kernels,
    follow_jobs,
    mark_unwanted,
    follow_schedules,
    end_long_stopped,
    discard_homes,
    give_up_jobs,
    delete_old_jobs,
    learn_lengths,
    score_forecasts,
    tell_of_unused,
    send_due_mails,
    delete_old_notices,
    request_scans,
    request_what_ifs,
    try_old_ones_again,
    remove_left_tags,
    request_tag_deletions,
    settle_accounts,
)


def repair(now: datetime) -> int:
    """Run all rules; returns how many rows were repaired. A failed rule is logged and does not stop the others, but a
    database outage is raised. Concurrent passes do not repair anything twice."""
    return sum(_apply(rule, now) for rule in RULES)


def _apply(rule: Rule, now: datetime) -> int:
    try:
        return rule(now)
    except Exception as error:
        if is_outage(error):
            raise  # the other rules would also wait for the database
        log_failure(logger, error, "the repair rule %s failed", rule.__name__)
        return 0
