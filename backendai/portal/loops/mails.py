"""Sends mails to owners and superadmins. It runs in its own thread, as a mail server may be slow."""

from __future__ import annotations

import logging
import smtplib
from datetime import datetime
from typing import Any

from django.utils import timezone

from backendai.domain.activity.access_notices import ACCESS
from backendai.domain.activity.notice_sources import Writer
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.compute.services.notices.unknown_notifications import UNKNOWN
from backendai.domain.pipelines.presentation import RUNS
from backendai.domain.serving.services.notices import ENDPOINTS
from backendai.portal.loops.background import Background
from backendai.portal.loops.mail_texts import access_mail, endpoint_mail, mail_of, run_mail, unknown_mail

logger = logging.getLogger(__name__)

_MAILS: tuple[tuple[Any, Writer], ...] = (
    (UNKNOWN, unknown_mail),
    (SESSIONS, mail_of),
    (ACCESS, access_mail),
    (RUNS, run_mail),
    (ENDPOINTS, endpoint_mail),
)
_background = Background("mails", "sending mails failed", logger)


def send_due_mails(now: datetime) -> int:
    """Start sending waiting mails, unless this process is already sending. Returns 0, as this rule of the repair pass
    repairs nothing."""
    if any(source.has_mails(now) for source, _ in _MAILS):
        _background.begin(_send)
    return 0


def _send() -> None:
    for source, write in _MAILS:
        try:
            source.send_mails(timezone.now, write)
        except (OSError, smtplib.SMTPException) as error:
            logger.warning("notifications could not be mailed: %s", error)
