"""Addresses of the official client's protocol."""

from typing import Any

from django.urls import path

from backendai.portal.compat import admin_lists, events, folders, launching, lists, session_files, sessions, storage
from backendai.portal.compat.frame import view
from backendai.portal.compat.graph import answering

_S = "compat/session/<str:name>"
_F = "compat/folders/<str:name>"
_parts: dict[str, Any] = {
    "authentication_classes": [storage.StorageToken],
    "is_streamed": True,
    "largest_body": storage.LARGEST_PART,
    "largest_of_strangers": storage.LARGEST_PART,
}
_graph = view(post=answering(lists.ROOTS | admin_lists.ROOTS), is_large=True)
_versions = view(get=sessions.versions, is_open=True)
urlpatterns = [
    path("compat", _versions),
    path("compat/", _versions),
    path("compat/manager/announcement", view(get=sessions.announcement)),
    path("compat/admin/gql", _graph),
    path("compat/admin/graphql", _graph),
    path("compat/session", view(post=launching.create, launches=True)),
    path(_S, view(delete=sessions.end, patch=sessions.restart)),
    path(f"{_S}/rename", view(post=sessions.rename)),
    path(f"{_S}/logs", view(get=sessions.logs, is_large=True)),
    path(f"{_S}/status-history", view(get=sessions.history)),
    path(f"{_S}/files", view(get=session_files.entries)),
    path(f"{_S}/upload", view(post=session_files.upload, is_streamed=True, largest_body=session_files.LARGEST_FORM)),
    path(f"{_S}/download", view(get=session_files.download, post=session_files.download)),
    path("compat/stream/session/<str:name>/apps", view(get=sessions.apps)),
    path("compat/events/session", view(get=events.of_session)),
    path("compat/folders", view(get=folders.folders, post=folders.create)),
    path("compat/folders/_/hosts", view(get=folders.hosts)),
    path("compat/folders/invitations/list", view(get=folders.invitations)),
    path("compat/folders/invitations/accept", view(post=folders.accept)),
    path("compat/folders/invitations/delete", view(delete=folders.decline)),
    path(_F, view(get=folders.info, delete=folders.delete)),
    path(f"{_F}/rename", view(post=folders.rename)),
    path(f"{_F}/files", view(get=folders.entries)),
    path(f"{_F}/mkdir", view(post=folders.mkdir)),
    path(f"{_F}/rename-file", view(post=folders.rename_file)),
    path(f"{_F}/move-file", view(post=folders.move_file)),
    path(f"{_F}/delete-files", view(delete=folders.delete_files, post=folders.delete_files)),
    path(f"{_F}/invite", view(post=folders.invite)),
    path(f"{_F}/request-upload", view(post=storage.request_upload)),
    path(f"{_F}/request-download", view(post=storage.request_download)),
    path("compat/storage/upload", view(patch=storage.append, head=storage.offset, **_parts)),
    path("compat/storage/download", view(get=storage.read, authentication_classes=[storage.StorageToken])),
    path("compat/<path:rest>", view()),
]
