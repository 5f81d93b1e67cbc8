"""The list of endpoints, the page of an endpoint, and the form for a new one."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from csp.constants import SELF
from csp.decorators import csp_update
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from backendai.base.core.errors import UserError
from backendai.domain.serving.models import Endpoint, State
from backendai.domain.serving.presentation import accelerators_of, points_of, shown
from backendai.domain.serving.previewing import preview_endpoint
from backendai.domain.serving.services.endpoints import create_endpoint
from backendai.portal.web.account.menu import blame
from backendai.portal.web.endpoints.comparing import compared
from backendai.portal.web.endpoints.forms import EndpointForm
from backendai.portal.web.endpoints.page_forms import METRIC_WORDS, RuleForm, ScaleForm, TokenForm
from backendai.portal.web.endpoints.plots import HEIGHT, WIDTH, plots_of, window_of
from backendai.portal.web.endpoints.request_fields import SettingsForm
from backendai.portal.web.frame.requests import PageRequest

SECTION = {"section": "endpoints"}
_NEWEST = ("-updated_at", "-pk")  # a reason that comes again counts up its record
_PAGE, _MOST_RECORDS, _MOST_ENDED, _LONGEST_NAME = 50, 30, 20, 64


@require_safe
@never_cache
@login_required
def endpoints(request: PageRequest) -> HttpResponse:
    """Show a page of the visible endpoints; ``q`` filters by name. For htmx only the list."""
    asked = request.GET.get("q", "").strip()[:_LONGEST_NAME]
    rows = Endpoint.objects.visible_to(request.user).live().filter(name__icontains=asked).order_by("name", "pk")
    page = Paginator(rows, _PAGE).get_page(request.GET.get("page"))
    context = {"endpoints": shown(list(page), timezone.now()), "page": page, "asked": asked} | SECTION
    is_part = request.htmx and not request.htmx.boosted
    return render(request, f"web/endpoints/{'_list' if is_part else 'list'}.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
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


@require_safe
@never_cache
@login_required
def endpoint(request: PageRequest, endpoint_id: UUID) -> HttpResponse:
    """Show an endpoint; for htmx only the live parts."""
    return endpoint_page(request, find_endpoint(request, endpoint_id))


@require_safe
@never_cache
@login_required
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
        "rules": [(rule, METRIC_WORDS.get(rule.metric, rule.metric)) for rule in found.rules.all()],
        "rule_form": RuleForm(user=request.user),
        "is_part": is_part,
    }
    template = "_refresh" if is_part else "endpoint"

    def page(request: HttpRequest) -> HttpResponse:
        return render(request, f"web/endpoints/{template}.html", context | SECTION | more, status=status)

    # The call box sends its requests as any other caller does: to the endpoint itself.
    return cast(HttpResponse, csp_update({"connect-src": [SELF, one.url]})(page)(request))
