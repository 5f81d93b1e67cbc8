"""Superadmins are told of unknown kernels, and nobody else is."""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import UnknownKernel
from backendai.domain.compute.services.agents.unknown_kernels import remove_unknown
from backendai.domain.compute.services.notices.unknown_notifications import UNKNOWN, undecided_by_agent
from backendai.portal.loops.mail_texts import unknown_mail
from tests.cast import Cast
from tests.compute.test_unknown_kernels import unknown_session
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.example.org", "https://lab.example.org"


@pytest.fixture
def row(cast: Cast) -> UnknownKernel:
    unknown_session(cast, make_agent("gpu-1"), name="thesis")
    return UnknownKernel.objects.get()


def send() -> int:
    return UNKNOWN.send_mails(timezone.now, unknown_mail)


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_it_is_under_the_bell_of_superadmins_until_it_is_decided(cast: Cast, row: UnknownKernel) -> None:
    dana, alice = browser(cast.dana), browser(cast.alice)
    assert "1 new notification" in dana.get(reverse("web:bell")).content.decode()
    body = dana.get(reverse("web:notifications")).content.decode()
    assert "gpu-1" in body and reverse("manage:unknown-kernels") in body
    assert "notification" not in alice.get(reverse("web:bell")).content.decode()
    assert "gpu-1" not in alice.get(reverse("web:notifications")).content.decode()
    remove_unknown(cast.dana, row, now=timezone.now())
    assert undecided_by_agent(cast.dana) == []
    assert "new notification" not in dana.get(reverse("web:bell")).content.decode()


def test_one_mail_goes_to_each_superadmin_once(cast: Cast, row: UnknownKernel) -> None:
    assert UNKNOWN.has_mails(timezone.now())
    admins = set(User.objects.filter(role=User.Role.SUPERADMIN, is_active=True).values_list("email", flat=True))
    assert (send(), send()) == (len(admins), 0)
    assert {address for one in mail.outbox for address in one.to} == admins
    assert "gpu-1: 1" in mail.outbox[0].body
    assert "https://lab.example.org/manage/unknown-kernels/" in mail.outbox[0].body
    assert not UNKNOWN.has_mails(timezone.now())


def test_what_the_mail_server_refuses_is_tried_again_for_an_hour(cast: Cast, row: UnknownKernel) -> None:
    with (
        mock.patch.object(EmailMessage, "send", side_effect=smtplib.SMTPServerDisconnected("away")),
        pytest.raises(smtplib.SMTPServerDisconnected),
    ):
        send()
    assert UNKNOWN.has_mails(timezone.now())
    assert not UNKNOWN.has_mails(timezone.now() + timedelta(minutes=61))
    assert send() >= 1


def test_nothing_is_looked_for_without_mail_and_by_others(
    cast: Cast, row: UnknownKernel, settings: Any, django_assert_num_queries: Callable[..., Any]
) -> None:
    settings.EMAIL_URL = ""
    with django_assert_num_queries(0):
        assert not UNKNOWN.has_mails(timezone.now())
        assert undecided_by_agent(cast.alice) == []
