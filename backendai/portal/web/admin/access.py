"""Access to the administration pages. Other users get 404."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ClassVar

from django.contrib.auth.mixins import AccessMixin
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import URLPattern, path
from django.utils.cache import add_never_cache_headers
from django.utils.functional import Promise

from backendai.domain.accounts.models import User

Rule = Callable[[User], bool]


def superadmin(user: User) -> bool:
    """Return whether the user is a superadmin."""
    return user.is_superadmin


def administrator(user: User) -> bool:
    """Return whether the user administers the platform or a domain. Domain admins see the part of their domain."""
    return user.role != User.Role.USER


class PanelPage(AccessMixin):
    """A mixin for every page of the panel.

    ``section`` is the highlighted menu entry; ``rule`` decides who may open the page. The page of a menu entry also
    sets ``icon``, ``guide`` (its section of the administration guide) and ``more`` (the addresses of its other pages).
    """

    section: ClassVar[str] = ""
    title: str | Promise = ""
    rule: Rule = staticmethod(superadmin)
    icon: ClassVar[str] = ""
    guide: ClassVar[str] = ""
    more: ClassVar[Sequence[URLPattern]] = ()
    do_not_call_in_templates = True  # the menu shows classes
    request: HttpRequest

    @classmethod
    def paths(cls) -> Iterator[URLPattern]:
        """Yield the addresses of a menu entry's pages. The route of its own page is its section."""
        yield path(f"{cls.section}/", cls.as_view(), name=cls.section)  # type: ignore[attr-defined]
        yield from cls.more

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

    def page_context(self) -> dict[str, Any]:
        """Return what the template of this page needs besides the context of its kind."""
        return {}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of every page of the panel."""
        context: dict[str, Any] = super().get_context_data(**(self.page_context() | kwargs))  # type: ignore[misc]
        return {"section": "manage", "panel_section": self.section, "title": self.title} | context


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
