"""The bell and the cards: notifications about sessions, and background jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.messages import in_words
from backendai.domain.activity.access_notices import ACCESS, access_cards_of
from backendai.domain.activity.jobs import cancel_job, clear_jobs, see_jobs
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.portal.web.frame.requests import PageRequest, ids_in, signed_in
from backendai.portal.web.news.bell import SOURCES, counts_of, lines_of
from backendai.portal.web.news.cards import MOST_SHOWN, cards_of, piles_of

_MOST_AT_ONCE = 200
_OPENING = "/sessions/new/opening/"
_LONGEST_ID = 18  # digits of a notice's number: what a database can hold


@signed_in("GET")
def notifications(request: PageRequest) -> HttpResponse:
    """Show notifications and background jobs; for htmx only the list."""
    template = "web/_notifications.html" if request.htmx else "web/notifications.html"
    return render(request, template, _context(request))


@signed_in("GET")
def bell(request: PageRequest) -> HttpResponse:
    """Return the mark on the bell: the numbers of running jobs and unseen notifications."""
    return render(request, "web/_bell.html", counts_of(request.user))


@signed_in("GET")
def cards(request: PageRequest) -> HttpResponse:
    """Return the cards of the user's sessions."""
    return _cards(request)


@signed_in("POST")
def card_close(request: PageRequest, session_id: UUID) -> HttpResponse:
    """Close the card of a session, and those of the sessions in ``session``; only the user's own."""
    beside = ids_in(request.POST.getlist("session")[:_MOST_AT_ONCE])
    SESSIONS.close(request.user, now=timezone.now(), session__in=[session_id, *beside])
    return _cards(request) if request.htmx else redirect("web:notifications")


@signed_in("POST")
def access_close(request: PageRequest, notice_id: int) -> HttpResponse:
    """Close the user's card of access that somebody gave."""
    ACCESS.close(request.user, now=timezone.now(), pk=notice_id)
    return _cards(request) if request.htmx else redirect("web:notifications")


@signed_in("POST")
def cards_close(request: PageRequest) -> HttpResponse:
    """Close all cards up to the newest that the page has shown."""
    text = request.POST.get("until", "")
    if text.isdecimal() and len(text) <= _LONGEST_ID:
        SESSIONS.close(request.user, now=timezone.now(), pk__lte=int(text))
        ACCESS.close(request.user, now=timezone.now())
    return _cards(request) if request.htmx else redirect("web:notifications")


@signed_in("POST")
def seen(request: PageRequest) -> HttpResponse:
    """Mark the user's notifications as seen."""
    now = timezone.now()
    see_jobs(request.user, now=now)
    for source in SOURCES:
        source.see(request.user, now=now)
    return _answer(request)


@signed_in("POST")
def clear(request: PageRequest) -> HttpResponse:
    """Dismiss ended jobs and all notifications."""
    now = timezone.now()
    clear_jobs(request.user, now=now)
    for source in SOURCES:
        source.clear(request.user, now=now)
    return _answer(request)


@signed_in("POST")
def job_cancel(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Request the cancellation of a background job."""
    try:
        cancel_job(request.user, job_id, now=timezone.now())
    except NotFound as error:
        raise Http404 from error
    except UserError as error:
        if not request.htmx:
            messages.error(request, in_words(error.message))
    return _answer(request)


def _answer(request: PageRequest) -> HttpResponse:
    if request.htmx:
        return render(request, "web/_notifications.html", _context(request))
    return redirect("web:notifications")


def _cards(request: PageRequest) -> HttpResponse:
    # The page of a session shows all that its card would, and so does the page that opens an app as soon as it runs.
    here = request.htmx.current_url_abs_path or ""
    if here.startswith(_OPENING):
        return HttpResponse()
    cards = [
        card
        for card in cards_of(request.user, now=timezone.now())
        if not here.startswith(reverse("web:session", args=[card.session.pk]))
    ]
    asks_there = here.partition("?")[0] == reverse("web:folders")  # the list of folders shows invitations
    given = [] if asks_there else list(access_cards_of(request.user, now=timezone.now())[:_MOST_AT_ONCE])
    piles = piles_of(cards)
    shown = piles[: MOST_SHOWN - len(given[:1])]
    more = sum(len(pile.cards) for pile in piles[len(shown) :]) + len(given[1:])
    context = {
        "access": given[:1],
        "piles": shown,
        "more": more,
        "beside_first": len(cards) + len(given) - (len(piles[0].cards) if piles and not given else 1),
        "newest": max((card.notice.pk for card in cards), default=0),
        "idle": [card.session.pk for card in cards if card.may_keep],
    }
    return render(request, "web/_cards.html", context)


def _context(request: PageRequest) -> dict[str, Any]:
    lines = lines_of(request.user)
    return {
        "section": "notifications",
        "lines": lines,
        "idle": [line.warned for line in lines if line.warned],
    }
