"""Addresses of the official client's protocol."""

from django.urls import path

from backendai.portal.compat import launching, lists, sessions
from backendai.portal.compat.frame import view
from backendai.portal.compat.graph import answering

_S = "compat/session/<str:name>"
_graph = view(post=answering(lists.ROOTS), is_large=True)
_versions = view(get=sessions.versions, is_open=True)
urlpatterns = [
    path("compat", _versions),
    path("compat/", _versions),
    path("compat/manager/announcement", view(get=sessions.announcement)),
    path("compat/admin/gql", _graph),
    path("compat/admin/graphql", _graph),
    path("compat/session", view(post=launching.create, launches=True)),
    path("compat/session/_/create-from-template", view(post=launching.create_from_template, launches=True)),
    path("compat/session/_/match", view(get=sessions.matches)),
    path(_S, view(get=sessions.facts, delete=sessions.end, post=sessions.execute, patch=sessions.restart)),
    path(f"{_S}/rename", view(post=sessions.rename)),
    path(f"{_S}/logs", view(get=sessions.logs, is_large=True)),
    path(f"{_S}/status-history", view(get=sessions.history)),
    path(f"{_S}/dependency-graph", view(get=sessions.graph)),
    path(f"{_S}/interrupt", view(post=sessions.interrupt)),
    path(f"{_S}/complete", view(post=sessions.complete)),
    path("compat/stream/session/<str:name>/apps", view(get=sessions.apps)),
    path("compat/<path:rest>", view()),
]
