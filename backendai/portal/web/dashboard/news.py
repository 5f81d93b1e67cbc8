"""The user's settings of notifications."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.domain.activity.notices import CHANNELS, CHOSEN, GIVEN, NoticeKind, choices_of, choose
from backendai.portal.web.account.menu import account_page
from backendai.portal.web.frame.requests import PageRequest, signed_in


@signed_in("GET", "POST")
def notice_choices(request: PageRequest) -> HttpResponse:
    """Show the user's settings of notifications; on POST save them."""
    if request.method == "POST":
        offered = [name for name, channel in CHANNELS.items() if not channel.why_not()]
        values = {str(kind): {one: f"{kind}-{one}" in request.POST for one in offered} for kind in CHOSEN}
        try:
            choose(request.user, values)
        except UserError as error:
            messages.error(request, in_words(error.message))
        else:
            messages.success(request, _("Saved."))
        return redirect("web:notice_choices")
    return account_page(request, "web:notice_choices", _context(request))


def _context(request: PageRequest) -> dict[str, Any]:
    choices = choices_of(request.user)
    texts = {
        NoticeKind.STARTED: (
            _("A session starts"),
            _(
                "The card of every session that you launch, a start after more than a minute of waiting, and before a "
                "longer wait ends, if that can be foreseen."
            ),
        ),
        NoticeKind.FINISHED: (
            _("A batch session finishes successfully"),
            _("Its command ended with exit code 0. A run of many sessions is reported once, when it ends."),
        ),
        NoticeKind.FAILED: (
            _("A session fails"),
            _("The session could not be started, or its program failed. Failures of endpoints, too."),
        ),
        NoticeKind.ENDED: (
            _("A session is ended by the platform or an administrator"),
            _("It was idle, reached a time limit, was on an agent that was drained, or an administrator ended it."),
        ),
        NoticeKind.ENDING: (
            _("A session will end soon"),
            _(
                "An idle warning, or a time limit: an hour before, or at half of the time if that is later. "
                "Endpoints that hold accelerators without requests, too."
            ),
        ),
        GIVEN: (
            _("Somebody gives you access"),
            _("To a folder, an image, a template or a project, or your role changes."),
        ),
    }
    channels = [(one.name, in_words(one.title), in_words(one.why_not())) for one in CHANNELS.values()]
    rows = [(kind, *texts[kind], [(*one, choices[kind][one[0]]) for one in channels]) for kind in CHOSEN]
    return {"rows": rows, "channels": channels}
