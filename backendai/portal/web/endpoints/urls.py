"""Addresses of the pages of inference endpoints, below ``/endpoints/``."""

from django.urls import path

from backendai.portal.web.endpoints import changes, pages

urlpatterns = [
    path("", pages.endpoints, name="endpoints"),
    path("new/", pages.create, name="endpoint_new"),
    path("<uuid:endpoint_id>/", pages.endpoint, name="endpoint"),
    path("<uuid:endpoint_id>/scale/", changes.scale, name="endpoint_scale"),
    path("<uuid:endpoint_id>/update/", changes.update, name="endpoint_update"),
    path("<uuid:endpoint_id>/roll-back/", changes.go_back, name="endpoint_roll_back"),
    path("<uuid:endpoint_id>/state/", changes.state, name="endpoint_state"),
    path("<uuid:endpoint_id>/settings/", changes.settings, name="endpoint_settings"),
    path("<uuid:endpoint_id>/decisions/", pages.decisions, name="endpoint_decisions"),
    path("<uuid:endpoint_id>/rules/", changes.rules, name="endpoint_rules"),
    path("<uuid:endpoint_id>/tokens/", changes.tokens, name="endpoint_tokens"),
    path("<uuid:endpoint_id>/tokens/<uuid:endpoint_token_id>/revoke/", changes.revoke, name="endpoint_token_revoke"),
]
