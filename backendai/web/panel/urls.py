"""Addresses of the administration pages, each named as its entry of the menu."""

from django.urls import include, path

from backendai.web.panel import (
    agent_deeds,
    agents,
    audit,
    domains,
    groups,
    join_tokens,
    policies,
    start,
    statistics,
)

app_name = "manage"
urlpatterns = [
    path("", start.start, name="start"),
    path("domains/", domains.DomainList.as_view(), name="domains"),
    path("domains/new/", domains.DomainPage.as_view(), name="domain-new"),
    path("domains/<int:pk>/", domains.DomainPage.as_view(), name="domain"),
    path("domains/<int:pk>/delete/", domains.DomainDelete.as_view(), name="domain-delete"),
    path("", include("backendai.web.panel.people_urls")),
    path("agents/", agents.AgentList.as_view(), name="agents"),
    path("agents/<uuid:pk>/", agents.AgentPage.as_view(), name="agent"),
    path("agents/<uuid:pk>/switches/", agent_deeds.SwitchPage.as_view(), name="agent-switches"),
    path("agents/<uuid:pk>/drain/", agent_deeds.DrainPage.as_view(), name="agent-drain"),
    path("agents/<uuid:pk>/drain/cancel/", agent_deeds.CancelDrainPage.as_view(), name="agent-cancel-drain"),
    path("agents/<uuid:pk>/move/", agent_deeds.MovePage.as_view(), name="agent-move"),
    path("agents/<uuid:pk>/revoke/", agent_deeds.RevokePage.as_view(), name="agent-revoke"),
    path("agents/<uuid:pk>/renew/", agent_deeds.RenewPage.as_view(), name="agent-renew"),
    path("agents/<uuid:pk>/terminate/", agent_deeds.TerminatePage.as_view(), name="agent-terminate"),
    path("groups/", groups.GroupList.as_view(), name="groups"),
    path("groups/new/", groups.GroupPage.as_view(), name="group-new"),
    path("groups/<int:pk>/", groups.GroupPage.as_view(), name="group"),
    path("groups/<int:pk>/delete/", groups.GroupDelete.as_view(), name="group-delete"),
    path("join-tokens/", join_tokens.JoinTokenList.as_view(), name="join-tokens"),
    path("join-tokens/new/", join_tokens.JoinTokenPage.as_view(), name="join-token-new"),
    path("join-tokens/<int:pk>/revoke/", join_tokens.JoinTokenRevoke.as_view(), name="join-token-revoke"),
    path("policies/", policies.PolicyList.as_view(), name="policies"),
    path("policies/new/", policies.PolicyPage.as_view(), name="policy-new"),
    path("policies/<int:pk>/", policies.PolicyPage.as_view(), name="policy"),
    path("policies/<int:pk>/delete/", policies.PolicyDelete.as_view(), name="policy-delete"),
    path("statistics/", statistics.StatisticsPage.as_view(), name="statistics"),
    path("audit/", audit.AuditList.as_view(), name="audit"),
]
