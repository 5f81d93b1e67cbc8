"""The list of endpoints, the page of an endpoint, and the form for a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from csp.constants import SELF
from csp.decorators import csp_update
from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.serving.models import Endpoint, Revision, State
from backendai.domain.serving.presentation import accelerators_of, points_of, shown
from backendai.domain.serving.previewing import preview_endpoint
from backendai.domain.serving.rule_kinds import RULE_KINDS
from backendai.domain.serving.services.endpoints import create_endpoint
from backendai.portal.web.account.menu import blame
from backendai.portal.web.endpoints.forms import EndpointForm
from backendai.portal.web.endpoints.page_forms import RuleForm, ScaleForm, TokenForm
from backendai.portal.web.endpoints.plots import HEIGHT, WIDTH, plots_of, window_of
from backendai.portal.web.endpoints.request_fields import SettingsForm
from backendai.portal.web.frame.requests import PageRequest, signed_in


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the comparison: the name of the value, the old and the new value."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A revision with its changes since the one before; ``changes`` None: the earlier revision is unknown."""

    revision: Revision
    changes: tuple[Change, ...] | None


def compared(newest_first: Sequence[Revision]) -> list[Compared]:
    """Return each revision with its changes. Leaves out the values of environment variables, which may be secret."""
    before = {one.number: one for one in newest_first}
    return [
        Compared(one, _changes(before[one.number - 1], one) if one.number - 1 in before else None)
        for one in newest_first
    ]


def _changes(old: Revision, new: Revision) -> tuple[Change, ...]:
    first, second = _told(old), _told(new)
    lines = [Change(name, *_apart(first[name], second[name])) for name in second if first[name] != second[name]]
    secret = sorted(
        name for name in old.environ.keys() | new.environ.keys() if old.environ.get(name) != new.environ.get(name)
    )
    return (*lines, *(Change(name, _there(old.environ, name), _there(new.environ, name)) for name in secret))


def _apart(old: str, new: str) -> tuple[str, str]:
    """Return both texts without the lines with which both begin and end."""
    first, second = old.splitlines(), new.splitlines()
    for _side in range(2):
        while len(first) > 1 and len(second) > 1 and first[-1] == second[-1]:
            del first[-1], second[-1]
        first, second = first[::-1], second[::-1]
    return "\n".join(first), "\n".join(second)


def _told(one: Revision) -> dict[str, str]:
    return {
        _("Image"): one.image.name,
        _("Command"): one.command,
        _("Port"): str(one.port),
        _("Health path"): one.probe_path or "–",
        _("Model name"): one.model_name or "–",
        _("Amounts"): in_words(Slots.parse(one.slots).describe()),
        _("Folders"): ", ".join(str(mount.get("folder", "")) for mount in one.mounts) or "–",
    }


def _there(environ: Mapping[str, Any], name: str) -> str:
    return _("set") if name in environ else "–"


SECTION = {"section": "endpoints"}
_NEWEST = ("-updated_at", "-pk")  # a reason that comes again counts up its record
_PAGE, _MOST_RECORDS, _MOST_ENDED, _LONGEST_NAME = 50, 30, 20, 64


@signed_in("GET")
def endpoints(request: PageRequest) -> HttpResponse:
    """Show a page of the visible endpoints; ``q`` filters by name. For htmx only the list."""
    asked = request.GET.get("q", "").strip()[:_LONGEST_NAME]
    rows = Endpoint.objects.visible_to(request.user).live().filter(name__icontains=asked).order_by("name", "pk")
    page = Paginator(rows, _PAGE).get_page(request.GET.get("page"))
    context = {"endpoints": shown(list(page), timezone.now()), "page": page, "asked": asked} | SECTION
    is_part = request.htmx and not request.htmx.boosted
    return render(request, f"web/endpoints/{'_list' if is_part else 'list'}.html", context)


@signed_in("GET", "POST")
def create(request: PageRequest) -> HttpResponse:
    """Show the form for a new endpoint; on POST create it and redirect to its page."""
    form = EndpointForm(request.POST or None, request.FILES or None, user=request.user)
    order = request.POST.get("go", "")
    found: dict[str, Any] = {}
    try:
        if order == "read":
            form, found["notes"] = form.filled_in()
        elif request.method == "POST" and form.is_valid():
            if order != "check":
                return redirect("web:endpoint", create_endpoint(request.user, form.spec()).pk)
            found["preview"] = preview_endpoint(request.user, form.spec(), now=timezone.now())
    except UserError as error:
        _blame_for(form, error, order)
    context = {"form": form} | found | SECTION
    status = 422 if form.is_bound and not found else 200
    return render(request, "web/endpoints/new.html", context, status=status)


def _blame_for(form: EndpointForm, error: UserError, order: str) -> None:
    """Add the error to its field; after reading a model definition, only to the definition."""
    if order == "read":
        form.errors.clear()
        form.add_error("definition", error.message)
    else:
        blame(form, error)


@signed_in("GET")
def endpoint(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Show an endpoint; for htmx only the live parts."""
    return endpoint_page(request, find_endpoint(request, endpoint_id))


@signed_in("GET")
def decisions(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Show a page of all scaling decisions about an endpoint."""
    found = find_endpoint(request, endpoint_id)
    page = Paginator(found.records.order_by(*_NEWEST), _PAGE).get_page(request.GET.get("page"))
    return render(request, "web/endpoints/decisions.html", {"endpoint": found, "page": page} | SECTION)


def find_endpoint(request: PageRequest, endpoint_id: UUID) -> Endpoint:
    """Return a visible endpoint that is not deleted; else 404."""
    rows = Endpoint.objects.visible_to(request.user).live().select_related("resource_group", "owner", "project")
    found: Endpoint = get_object_or_404(rows, pk=endpoint_id)
    return found


def endpoint_page(request: PageRequest, found: Endpoint, *, status: int = 200, **more: Any) -> HttpResponse:
    """Return the page of an endpoint; ``more`` has the bound form with its errors."""
    now, is_part = timezone.now(), request.htmx and not request.htmx.boosted and not more
    one = shown([found], now)[0]
    row = one.endpoint
    records = list(found.records.order_by(*_NEWEST)[:_MOST_RECORDS])
    window = window_of(found.created_at, now)
    used = accelerators_of(found, window.since, now)
    changes = list(found.records.filter(created_at__gt=window.since).exclude(before=F("after")).order_by("pk"))
    numbers = {"minimum": row.minimum, "maximum": row.maximum, "target": f"{row.target:g}"}
    numbers["asleep_minutes"] = f"{row.asleep_after.total_seconds() / 60:g}"
    titles = {name: in_words(kind.title) for name, kind in RULE_KINDS.items()}
    context: dict[str, Any] = {
        "one": one,
        "endpoint": found,
        "plots": plots_of(points_of(found, window.since, now, window.columns), window, changes, used, row.desired),
        "plot_minutes": window.minutes,
        "plot_width": WIDTH,
        "plot_height": HEIGHT,
        "records": records,
        "ended": found.replicas.filter(state=State.ENDED).select_related("session", "revision")[:_MOST_ENDED],
        "settings_form": SettingsForm.showing(row),
        "revisions": compared(list(found.revisions.select_related("image")[:20])),
        "tokens": list(found.tokens.all()[:100]),
        "scale_form": ScaleForm(initial=numbers),
        "token_form": TokenForm(),
        "rules": [(rule, titles.get(rule.metric, rule.metric)) for rule in found.rules.all()],
        "rule_form": RuleForm(user=request.user),
        "is_part": is_part,
    }
    template = "_refresh" if is_part else "endpoint"

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, f"web/endpoints/{template}.html", context | SECTION | more, status=status)

    # The call box sends its requests as any other caller does: to the endpoint itself.
    return cast(HttpResponse, csp_update({"connect-src": [SELF, one.url]})(page)(request))
