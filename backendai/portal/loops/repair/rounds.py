"""Runs the repair pass. It repairs lost state, and ends everything that has exceeded its deadline. Every live state has
a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from backendai.domain.activity.jobs import delete_old_jobs, give_up_jobs
from backendai.domain.catalog.tags import try_old_ones_again
from backendai.domain.cluster.epochs import advance_epoch
from backendai.domain.cluster.node_jobs import follow_jobs
from backendai.domain.compute.services.apps.public import close_expired_apps
from backendai.domain.compute.services.images.commit_reports import mark_unwanted
from backendai.domain.compute.services.images.own_images import remove_left_tags
from backendai.domain.compute.services.launching.system_sessions import end_unused
from backendai.domain.compute.services.life.draining import end_drained
from backendai.domain.compute.services.notices.owners import delete_old_notices, warn_of_ends
from backendai.domain.serving.services.unused import tell_of_unused
from backendai.portal.loops.mails import send_due_mails
from backendai.portal.loops.outages import is_outage, log_failure
from backendai.portal.loops.repair.broker_repair import settle_accounts
from backendai.portal.loops.repair.lost_agents import end_lost_sessions, mark_silent_agents
from backendai.portal.loops.repair.other_portals import watch_for_others
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
from backendai.portal.loops.repair.stuck_sessions import follow_kernels
from backendai.portal.loops.scans import request_scans
from backendai.portal.loops.tags import request_tag_deletions

logger = logging.getLogger(__name__)

Rule = Callable[[datetime], int]

RULES: tuple[Rule, ...] = (
    advance_epoch,
    watch_for_others,
    watch_reachability,
    mark_silent_agents,
    end_lost_sessions,
    end_drained,
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
    give_up_jobs,
    delete_old_jobs,
    tell_of_unused,
    send_due_mails,
    delete_old_notices,
    request_scans,
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
