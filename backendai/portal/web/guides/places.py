"""Maps each page to the section of the guide that explains it, for the link *More in the guide*."""

from __future__ import annotations

from backendai.portal.web.guides.documents import ADMIN_GUIDE, USER_GUIDE

ACCOUNT = {
    "web:account": (USER_GUIDE, "signing-in"),
    "mfa_index": (USER_GUIDE, "signing-in"),
    "web:tokens": (USER_GUIDE, "scripts"),
    "web:key_pairs": (USER_GUIDE, "scripts"),
    "web:ssh_keys": (USER_GUIDE, "ssh-your-own-terminal-files-and-editor"),
    "web:environment": (USER_GUIDE, "what-every-session-finds"),
    "web:own_images": (USER_GUIDE, "saving-it-as-an-image"),
    "web:own_usage": (USER_GUIDE, "your-own-usage"),
    "web:notice_choices": (USER_GUIDE, "notifications-of-your-sessions"),
}
PANEL = {
    "users": (ADMIN_GUIDE, "people"),
    "projects": (ADMIN_GUIDE, "people"),
    "domains": (ADMIN_GUIDE, "people"),
    "invitations": (ADMIN_GUIDE, "people"),
    "import": (ADMIN_GUIDE, "people"),
    "policies": (ADMIN_GUIDE, "policies"),
    "queue": (ADMIN_GUIDE, "who-starts-next"),
    "agents": (ADMIN_GUIDE, "agents-1"),
    "unknown-kernels": (ADMIN_GUIDE, "unknown-kernels"),
    "groups": (ADMIN_GUIDE, "resource-groups"),
    "idle-checkers": (ADMIN_GUIDE, "idle-checkers"),
    "presets": (ADMIN_GUIDE, "presets"),
    "images": (ADMIN_GUIDE, "images"),
    "registries": (ADMIN_GUIDE, "registries"),
    "folders": (ADMIN_GUIDE, "folders"),
    "storage-hosts": (ADMIN_GUIDE, "folders"),
    "join-tokens": (ADMIN_GUIDE, "agents-1"),
    "slot-types": (ADMIN_GUIDE, "slot-types"),
    "jobs": (ADMIN_GUIDE, "background-jobs"),
    "statistics": (ADMIN_GUIDE, "statistics-and-the-audit-log"),
    "settings": (ADMIN_GUIDE, "the-site"),
    "announcements": (ADMIN_GUIDE, "the-site"),
    "maintenance": (ADMIN_GUIDE, "the-site"),
    "information": (ADMIN_GUIDE, "the-site"),
    "audit": (ADMIN_GUIDE, "statistics-and-the-audit-log"),
}
