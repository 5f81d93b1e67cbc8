"""Sends mails to owners and superadmins. It runs in its own thread, as a mail server may be slow."""

from __future__ import annotations

import logging
import smtplib
import threading
from datetime import datetime

from django.db import connection
from django.utils import timezone

from backendai.domain.compute.services.notices.mails import has_access_mails, has_mails, send_access_mails, send_mails
from backendai.domain.compute.services.notices.unknown_notifications import has_unknown_mails, send_unknown_mails
from backendai.domain.pipelines.services.news import has_run_mails, send_run_mails
from backendai.domain.serving.services.notices import has_endpoint_mails, send_endpoint_mails
from backendai.portal.loops.mail_texts import access_mail, endpoint_mail, mail_of, run_mail, unknown_mail
from backendai.portal.loops.outages import log_failure

logger = logging.getLogger(__name__)

_WAITING = (has_unknown_mails, has_mails, has_access_mails, has_run_mails, has_endpoint_mails)
_one_at_a_time = threading.Lock()


def send_due_mails(now: datetime) -> int:
    """Start sending waiting mails, unless this process is already sending. Returns 0, as this rule of the repair pass
    repairs nothing."""
    is_due = any(has(now) for has in _WAITING)
    if is_due and _one_at_a_time.acquire(blocking=False):
        threading.Thread(target=_run, name="mails", daemon=True).start()
    return 0


def _run() -> None:
    try:
        for send in (
            lambda: send_unknown_mails(timezone.now, unknown_mail),
            lambda: send_mails(timezone.now, mail_of),
            lambda: send_access_mails(timezone.now, access_mail),
            lambda: send_run_mails(timezone.now, run_mail),
            lambda: send_endpoint_mails(timezone.now, endpoint_mail),
        ):
            try:
                send()
            except (OSError, smtplib.SMTPException) as error:
                logger.warning("notifications could not be mailed: %s", error)
    except Exception as error:
        log_failure(logger, error, "sending mails failed")
    finally:
        connection.close()
        _one_at_a_time.release()
