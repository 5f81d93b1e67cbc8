"""Sends mails to owners and superadmins. It runs in its own thread, as a mail server may be slow."""

from __future__ import annotations

import logging
import smtplib
import threading
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from backendai.domain.activity.access_notices import ACCESS
from backendai.domain.activity.notice_sources import Writer
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.compute.services.notices.unknown_notifications import UNKNOWN
from backendai.domain.pipelines.presentation import RUNS
from backendai.domain.serving.services.notices import ENDPOINTS
from backendai.portal.loops.mail_texts import access_mail, endpoint_mail, mail_of, run_mail, unknown_mail
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_MAILS: tuple[tuple[Any, Writer], ...] = (
    (UNKNOWN, unknown_mail),
    (SESSIONS, mail_of),
    (ACCESS, access_mail),
    (RUNS, run_mail),
    (ENDPOINTS, endpoint_mail),
)
_one_at_a_time = threading.Lock()


def send_due_mails(now: datetime) -> int:
    """Start sending waiting mails, unless this process is already sending. Returns 0, as this rule of the repair pass
    repairs nothing."""
    is_due = any(source.has_mails(now) for source, _ in _MAILS)
    if is_due and _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, name="mails", daemon=True).start()
    return 0


def _run() -> None:
    try:
        for source, write in _MAILS:
            try:
                source.send_mails(timezone.now, write)
            except (OSError, smtplib.SMTPException) as error:
                logger.warning("notifications could not be mailed: %s", error)
    except Exception as error:
        log_failure(logger, error, "sending mails failed")
    finally:
        connection.close()
        _one_at_a_time.release()
