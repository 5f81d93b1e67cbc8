"""Addresses of the pages."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from backendai.web.views import (
    account,
    agents,
    announcements,
    apps,
    dashboard,
    invitations,
    launch,
    notifications,
    session,
    sessions,
    sign_in,
)

app_name = "web"
urlpatterns = [
    path("", sessions.sessions, name="sessions"),
    path("sessions/new/", launch.launch, name="launch"),
    path("sessions/new/presets/", launch.launch_presets, name="launch_presets"),
    path("sessions/new/preview/", launch.launch_preview, name="launch_preview"),
    path("sessions/<uuid:session_id>/", session.session, name="session"),
    path("sessions/<uuid:session_id>/row/", sessions.session_row, name="session_row"),
    path("sessions/<uuid:session_id>/panel/", session.session_panel, name="session_panel"),
    path("sessions/<uuid:session_id>/history/", session.history, name="history"),
    path("sessions/<uuid:session_id>/outlook/", session.outlook, name="outlook"),
    path("sessions/<uuid:session_id>/terminate/", session.terminate, name="terminate"),
    path("sessions/<uuid:session_id>/apps/<slug:service>/", apps.app, name="app"),
    path("resources/panel/", sessions.resources_panel, name="resources_panel"),
    path("dashboard/", dashboard.dashboard, name="dashboard"),
    path("agents/", agents.agents, name="agents"),
    path("notifications/", notifications.notifications, name="notifications"),
    path("notifications/bell/", notifications.bell, name="bell"),
    path("notifications/seen/", notifications.seen, name="notifications_seen"),
    path("notifications/clear/", notifications.clear, name="notifications_clear"),
    path("notifications/jobs/<uuid:job_id>/cancel/", notifications.job_cancel, name="job_cancel"),
    path("invitations/accept/", invitations.invitation, name="invitation"),
    path("invitations/<str:text>/", invitations.opened, name="invitation_opened"),
    path("announcements/", announcements.current, name="announcements"),
    path("account/", account.account, name="account"),
    path("account/password/", account.password, name="password"),
    path("account/tokens/", account.tokens, name="tokens"),
    path("account/tokens/<uuid:token_id>/revoke/", account.token_revoke, name="token_revoke"),
    path("login/", sign_in.Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
