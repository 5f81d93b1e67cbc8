"""People: who may sign in, where they belong, their limits, and the keys they use from scripts."""

from backendai.domain.accounts.models.credentials import (
    AccessToken,
    DeviceRequest,
    KeyPair,
    Login,
    LoginCount,
    SeenSignature,
    StoredAnswer,
    new_access_key,
)
from backendai.domain.accounts.models.environments import BootstrapScript, Dotfile, SshKey
from backendai.domain.accounts.models.invitations import Invitation
from backendai.domain.accounts.models.people import Domain, Membership, Preference, Project, User, UserManager
from backendai.domain.accounts.models.policies import PolicyDefault, ResourcePolicy

__all__ = [
    "AccessToken",
    "BootstrapScript",
    "DeviceRequest",
    "Domain",
    "Dotfile",
    "Invitation",
    "KeyPair",
    "Login",
    "LoginCount",
    "Membership",
    "PolicyDefault",
    "Preference",
    "Project",
    "ResourcePolicy",
    "SeenSignature",
    "SshKey",
    "StoredAnswer",
    "User",
    "UserManager",
    "new_access_key",
]
