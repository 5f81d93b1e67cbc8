"""Addresses of the REST API."""

from django.urls import path, re_path

from backendai.api import schema  # noqa: F401  (registers the token's place in the OpenAPI document)
from backendai.api.views import (
    account,
    agents,
    apps,
    cluster,
    documents,
    explanations,
    groups,
    jobs,
    logs,
    owners,
    policies,
    presets,
    sessions,
)

app_name = "api"
urlpatterns = [
    path("schema/", documents.Schema.as_view(), name="schema"),
    path("docs/", documents.Documents.as_view(), name="docs"),
    path("v1/sessions/", sessions.SessionList.as_view(), name="sessions"),
    path("v1/sessions/<uuid:session_id>/", sessions.SessionDetail.as_view(), name="session"),
    path("v1/sessions/<uuid:session_id>/terminate/", sessions.SessionEnd.as_view(), name="session-terminate"),
    path("v1/sessions/<uuid:session_id>/logs/", logs.SessionLog.as_view(), name="session-logs"),
    path("v1/sessions/<uuid:session_id>/history/", sessions.SessionHistory.as_view(), name="session-history"),
    path("v1/sessions/<uuid:session_id>/kernels/", sessions.SessionKernels.as_view(), name="session-kernels"),
    path("v1/sessions/<uuid:session_id>/explain/", explanations.SessionExplanation.as_view(), name="session-explain"),
    path("v1/sessions/<uuid:session_id>/apps/", apps.SessionApps.as_view(), name="session-apps"),
    path("v1/sessions/<uuid:session_id>/apps/<slug:service>/", apps.SessionApp.as_view(), name="session-app"),
    path("v1/session-preview/", explanations.SessionPreview.as_view(), name="session-preview"),
    path("v1/owners/", owners.OwnerLookup.as_view(), name="owners"),
    path("v1/policies/", policies.PolicyList.as_view(), name="policies"),
    path("v1/policies/<int:pk>/", policies.PolicyDetail.as_view(), name="policy"),
    path("v1/images/", cluster.ImageList.as_view(), name="images"),
    path("v1/presets/", presets.PresetList.as_view(), name="presets"),
    path("v1/presets/<int:preset_id>/", presets.PresetDetail.as_view(), name="preset"),
    path("v1/check-presets/", presets.CheckPresets.as_view(), name="check-presets"),
    path("v1/resource-groups/", groups.ResourceGroupList.as_view(), name="resource-groups"),
    path("v1/resource-groups/<slug:group>/", groups.ResourceGroupDetail.as_view(), name="resource-group"),
    path(
        "v1/resource-groups/<slug:group>/settings/",
        groups.ResourceGroupSettings.as_view(),
        name="resource-group-settings",
    ),
    path("v1/agents/", agents.AgentList.as_view(), name="agents"),
    path("v1/agents/<uuid:agent_id>/", agents.AgentDetail.as_view(), name="agent"),
    path("v1/agents/<uuid:agent_id>/drain/", agents.AgentDrain.as_view(), name="agent-drain"),
    path("v1/agents/<uuid:agent_id>/terminate/", agents.AgentEnd.as_view(), name="agent-terminate"),
    path("v1/agents/<uuid:agent_id>/credential/", agents.AgentCredential.as_view(), name="agent-credential"),
    path("v1/join-tokens/", agents.JoinTokenList.as_view(), name="join-tokens"),
    path("v1/join-tokens/<int:join_token_id>/", agents.JoinTokenDetail.as_view(), name="join-token"),
    path("v1/jobs/", jobs.JobList.as_view(), name="jobs"),
    path("v1/jobs/<uuid:job_id>/", jobs.JobDetail.as_view(), name="job"),
    path("v1/jobs/<uuid:job_id>/cancel/", jobs.JobCancel.as_view(), name="job-cancel"),
    path("v1/me/", account.Me.as_view(), name="me"),
    path("v1/tokens/", account.TokenList.as_view(), name="tokens"),
    path("v1/tokens/<uuid:token_id>/", account.TokenDetail.as_view(), name="token"),
    re_path("^", documents.Nowhere.as_view(), name="nowhere"),
]
