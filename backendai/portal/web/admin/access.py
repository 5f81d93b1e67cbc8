"""Access to the administration pages. Other users get 404."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.mixins import AccessMixin
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.functional import Promise

from backendai.domain.accounts.models import User
from backendai.portal.web.admin.menu import menu_for

Rule = Callable[[User], bool]


def superadmin(user: User) -> bool:
    """Return whether the user is a superadmin."""
    return user.is_superadmin


class PanelPage(AccessMixin):
    """A mixin for every page of the panel: checks access, and adds the menu.

    ``section`` is the highlighted menu entry; ``rule`` decides who may open the page.
    """

    section = ""
    title: str | Promise = ""
    rule: Rule = staticmethod(superadmin)
    request: HttpRequest

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Serve the page. Strangers are redirected to sign in; users without access get 404."""
        if not isinstance(request.user, User):
            return self.handle_no_permission()
        if not type(self).rule(request.user):
            raise Http404
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        add_never_cache_headers(answer)
        return answer

    @property
    def viewer(self) -> User:
        """The signed-in user."""
        assert isinstance(self.request.user, User)
        return self.request.user

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of every page of the panel."""
        context: dict[str, Any] = super().get_context_data(**kwargs)  # type: ignore[misc]
        shown = {"section": "manage", "panel_section": self.section, "title": self.title}
        return shown | {"menu": menu_for(self.viewer)} | context


def panel_page(rule: Rule = superadmin) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that checks access for function views, as ``PanelPage`` does for classes."""

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            page = PanelPage()
            page.request = request
            if not isinstance(request.user, User):
                return page.handle_no_permission()
            if not rule(request.user):
                raise Http404
            answer = view(request, *args, **kwargs)
            add_never_cache_headers(answer)
            return answer

        return guarded

    return decorate
