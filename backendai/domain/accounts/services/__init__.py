"""The actions on people, one file for each."""

from backendai.domain.accounts.services.change_user import (
    change_user,
    check_purge,
    purge,
    set_password,
    set_user_active,
)
from backendai.domain.accounts.services.create_user import NewUser, create_person, create_user, get_or_create_project
from backendai.domain.accounts.services.domains import change_domain, create_domain, delete_domain
from backendai.domain.accounts.services.importing import Link, Plan, import_people, plan_import
from backendai.domain.accounts.services.invitations import (
    Invitee,
    accept_as,
    accept_as_new,
    invite,
    open_invitation,
    revoke_invitation,
)
from backendai.domain.accounts.services.members import add_member, remove_member, set_member_role
from backendai.domain.accounts.services.projects import change_project, create_project, delete_project
from backendai.domain.accounts.services.tokens import (
    create_token,
    create_token_for,
    digest_of,
    revoke_token,
    token_of,
    user_of_token,
)

__all__ = [
    "Invitee",
    "Link",
    "NewUser",
    "Plan",
    "accept_as",
    "accept_as_new",
    "add_member",
    "change_domain",
    "change_project",
    "change_user",
    "check_purge",
    "create_domain",
    "create_person",
    "create_project",
    "create_token",
    "create_token_for",
    "create_user",
    "delete_domain",
    "delete_project",
    "digest_of",
    "get_or_create_project",
    "import_people",
    "invite",
    "open_invitation",
    "plan_import",
    "purge",
    "remove_member",
    "revoke_invitation",
    "revoke_token",
    "set_member_role",
    "set_password",
    "set_user_active",
    "token_of",
    "user_of_token",
]
