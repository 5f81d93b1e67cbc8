"""People: who may sign in, where they belong, their limits, and the keys they use from scripts."""

from backendai.accounts.models.credentials import AccessToken, KeyPair, Login, LoginCount, new_access_key
from backendai.accounts.models.people import Domain, Membership, Project, User, UserManager
from backendai.accounts.models.policies import ResourcePolicy

__all__ = [
    "AccessToken",
    "Domain",
    "KeyPair",
    "Login",
    "LoginCount",
    "Membership",
    "Project",
    "ResourcePolicy",
    "User",
    "UserManager",
    "new_access_key",
]
