"""Addresses of the pages."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from backendai.portal.web.account import (
    app_settings,
    command,
    credentials,
    device,
    environment,
    invitations,
    language,
    notifications,
    own_images,
)
from backendai.portal.web.account import pages as account
from backendai.portal.web.dashboard import about, help, news
from backendai.portal.web.dashboard import pages as dashboard
from backendai.portal.web.launch import folder as launch_folder
from backendai.portal.web.launch import pages as launch
from backendai.portal.web.launch import parts as launch_parts
from backendai.portal.web.launch import recent_pages as recent
from backendai.portal.web.search import pages as search
from backendai.portal.web.session import apps, console, end_times, opening, public_apps
from backendai.portal.web.session import boxes as session_boxes
from backendai.portal.web.session import commits as session_commits
from backendai.portal.web.session import ends as session_ends
from backendai.portal.web.session import homes as session_homes
from backendai.portal.web.session import idle_actions as session_idle
from backendai.portal.web.session import pages as session
from backendai.portal.web.session import sharing as session_sharing
from backendai.portal.web.session import ssh as session_ssh
from backendai.portal.web.session import stops as session_stops
from backendai.portal.web.session_list import changes as sessions
from backendai.portal.web.sign_in import pages as sign_in
from backendai.portal.web.wall import pages as wall

app_name = "web"
urlpatterns = [
    path("", sessions.sessions, name="sessions"),
    path("sessions/stop/", session_stops.stop_many, name="stop_many"),
    path("sessions/terminate/", session_ends.terminate_many, name="terminate_many"),
    path("sessions/usage/", sessions.sessions_usage, name="sessions_usage"),
    path("sessions/keep/", session_idle.keep_many, name="keep_many"),
    path("sessions/columns/", sessions.columns, name="session_columns"),
    path("sessions/new/", launch.launch, name="launch"),
    path("sessions/new/amounts/", launch_parts.launch_amounts, name="launch_amounts"),
    path("sessions/new/preview/", launch_parts.launch_preview, name="launch_preview"),
    path("sessions/new/review/", launch_parts.launch_review, name="launch_review"),
    path("sessions/new/opening/<str:launch_key>/<slug:service>/", opening.opening, name="opening"),
    path("sessions/new/environments/", launch_parts.launch_environments, name="launch_environments"),
    path("sessions/new/folder/", launch_folder.launch_folder, name="launch_folder"),
    path("sessions/new/folders/", launch_folder.launch_folders, name="launch_folders"),
    path("sessions/new/recent/", recent.recent, name="recent"),
    path("sessions/new/recent/<uuid:recent_launch_id>/", recent.change, name="recent_change"),
    path("sessions/<uuid:session_id>/", session.session, name="session"),
    path("sessions/<uuid:session_id>/row/", sessions.session_row, name="session_row"),
    path("sessions/<uuid:session_id>/panel/", session.session_panel, name="session_panel"),
    path("sessions/<uuid:session_id>/console/", console.console, name="console"),
    path("sessions/<uuid:session_id>/home/", include("backendai.portal.web.homes.urls")),
    path("sessions/<uuid:session_id>/history/", session.history, name="history"),
    path("sessions/<uuid:session_id>/idle/<int:checker_id>/longer/", session_idle.longer, name="session_longer"),
    path("sessions/<uuid:session_id>/info/", session_boxes.info, name="session_info"),
    path("sessions/<uuid:session_id>/variables/", session_boxes.variables, name="session_variables"),
    path("sessions/<uuid:session_id>/log/", session_boxes.log, name="session_log"),
    path("sessions/<uuid:session_id>/end-time/", end_times.end_time, name="session_end_time"),
    path("sessions/<uuid:session_id>/labels/", session_boxes.labels, name="session_labels"),
    path("sessions/<uuid:session_id>/rename/", session_boxes.rename, name="session_rename"),
    path("sessions/<uuid:session_id>/commit/", session_commits.commit, name="session_commit"),
    path("sessions/<uuid:session_id>/stop/", session_stops.stop, name="session_stop"),
    path("sessions/<uuid:session_id>/stop-schedule/", session_stops.schedule, name="session_schedule"),
    path("sessions/<uuid:session_id>/resume/", session_stops.resume, name="session_resume"),
    path("sessions/<uuid:session_id>/keep-home/", session_homes.keep, name="session_keep_home"),
    path("sessions/<uuid:session_id>/disk/", session_commits.disk, name="session_disk"),
    path("sessions/<uuid:session_id>/commit/left-out/", session_commits.left_out, name="session_left_out"),
    path("sessions/<uuid:session_id>/sharing/", session_sharing.sharing, name="session_sharing"),
    path("sessions/<uuid:session_id>/sharing/<int:share_id>/stop/", session_sharing.unshare, name="session_unshare"),
    path("sessions/<uuid:session_id>/apps/", session_boxes.app_launcher, name="app_launcher"),
    path("sessions/<uuid:session_id>/ssh/", session_ssh.ssh, name="session_ssh"),
    path("sessions/<uuid:session_id>/ssh/key/", session_ssh.ssh_key, name="session_ssh_key"),
    path("sessions/<uuid:session_id>/outlook/", session.outlook, name="outlook"),
    path("sessions/<uuid:session_id>/usage/", session.usage, name="session_usage"),
    path("sessions/<uuid:session_id>/terminate/", session.terminate, name="terminate"),
    path("sessions/<uuid:session_id>/apps/<slug:service>/", apps.app, name="app"),
    path("sessions/<uuid:session_id>/apps/<slug:service>/settings/", app_settings.app_settings, name="app_settings"),
    path("sessions/<uuid:session_id>/apps/<slug:service>/public/", public_apps.public_app, name="public_app"),
    path("apps/<slug:label>/", public_apps.by_label, name="app_by_label"),
    path("resources/panel/", sessions.resources_panel, name="resources_panel"),
    path("folders/", include("backendai.portal.web.folders.urls")),
    path("endpoints/", include("backendai.portal.web.endpoints.urls")),
    path("runs/", include("backendai.portal.web.pipelines.urls")),
    path("templates/", include("backendai.portal.web.gallery.urls")),
    path("dashboard/", dashboard.dashboard, name="dashboard"),
    path("cluster/", wall.wall, name="wall"),
    path("agents/", dashboard.agents, name="agents"),
    path("search/", search.search, name="search"),
    path("notifications/", notifications.notifications, name="notifications"),
    path("notifications/bell/", notifications.bell, name="bell"),
    path("notifications/cards/", notifications.cards, name="cards"),
    path("notifications/cards/close/", notifications.cards_close, name="cards_close"),
    path("notifications/cards/access/<int:notice_id>/close/", notifications.access_close, name="access_card_close"),
    path("notifications/cards/<uuid:session_id>/close/", notifications.card_close, name="card_close"),
    path("notifications/seen/", notifications.seen, name="notifications_seen"),
    path("notifications/clear/", notifications.clear, name="notifications_clear"),
    path("notifications/jobs/<uuid:job_id>/cancel/", notifications.job_cancel, name="job_cancel"),
    path("invitations/accept/", invitations.invitation, name="invitation"),
    path("invitations/<str:text>/", invitations.opened, name="invitation_opened"),
    path("about/", about.about, name="about"),
    path("help/", help.guide, name="help_start"),
    path("help/<slug:slug>/", help.guide, name="help"),
    path("help/pictures/<slug:name>.png", help.picture, name="help_picture"),
    path("announcements/", dashboard.current_announcements, name="announcements"),
    path("account/", account.account, name="account"),
    path("account/password/", account.password, name="password"),
    path("account/tokens/", credentials.tokens, name="tokens"),
    path("account/tokens/<uuid:token_id>/revoke/", credentials.token_revoke, name="token_revoke"),
    path("account/keys/", credentials.key_pairs, name="key_pairs"),
    path("account/keys/<str:access_key>/", credentials.key_pair_change, name="key_pair_change"),
    path("account/keys/<str:access_key>/rotate/", credentials.key_pair_rotate, name="key_pair_rotate"),
    path("account/ssh-keys/", environment.ssh_keys, name="ssh_keys"),
    path("account/ssh-keys/<uuid:ssh_key_id>/delete/", environment.ssh_key_delete, name="ssh_key_delete"),
    path("account/images/", own_images.images, name="own_images"),
    path("account/images/<uuid:own_image_id>/rename/", own_images.image_rename, name="own_image_rename"),
    path("account/images/<uuid:own_image_id>/share/", own_images.image_share, name="own_image_share"),
    path(
        "account/images/<uuid:own_image_id>/share/<uuid:project_id>/take-back/",
        own_images.image_take_back,
        name="own_image_take_back",
    ),
    path("account/images/<uuid:own_image_id>/delete/", own_images.image_delete, name="own_image_delete"),
    path("account/usage/", account.usage, name="own_usage"),
    path("account/notifications/", news.notice_choices, name="notice_choices"),
    path("account/environment/", environment.environment, name="environment"),
    path("account/environment/<uuid:dotfile_id>/delete/", environment.dotfile_delete, name="dotfile_delete"),
    path("account/environment/script/", environment.script, name="script"),
    path("device/", device.device, name="device"),
    path("cli/", command.install_lines, name="command"),
    path("cli/<str:wheel>", command.command_wheel, name="command_wheel"),
    path("language/", language.language, name="language"),
    path("login/", sign_in.Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
