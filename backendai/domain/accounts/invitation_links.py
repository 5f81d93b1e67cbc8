"""Builds the link of an invitation, and sends it by mail if a mail server is set up."""

from __future__ import annotations

import logging
import smtplib

from django.conf import settings
from django.core.mail import send_mail

from backendai.domain.accounts.models import Invitation

logger = logging.getLogger(__name__)

_TEXT = """\
{inviter} invites you to the project {project}.

Open this link to join. It is for you alone, and good until {until}:

{link}

If you do not know what this is about, ignore it: nothing happens then.
"""


def link_of(text: str, portal: str = "") -> str:
    """Return the address that an invited person opens. ``portal``: the address at which the inviter uses the portal."""
    return f"{(portal or settings.PORTAL_URL).rstrip('/')}/invitations/{text}/"


def mail_link(invitation: Invitation, text: str) -> bool:
    """Mail the link to the invited person; return whether the mail server accepted it.

    Otherwise the inviter passes the link on. Call it after the transaction, as it waits for the server.
    """
    if not settings.EMAIL_URL:
        return False
    inviter = invitation.invited_by.display_name if invitation.invited_by else "Somebody"
    until = f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC"
    body = _TEXT.format(inviter=inviter, project=invitation.project.name, until=until, link=link_of(text))
    try:
        send_mail("Invitation to compute sessions", body, None, [invitation.email])
    except (OSError, smtplib.SMTPException) as error:
        logger.warning("the invitation %s could not be mailed: %s", invitation.pk, error)
        return False
    return True
