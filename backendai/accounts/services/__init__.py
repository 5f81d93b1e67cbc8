"""The verbs of people, one file per deed."""

from backendai.accounts.services.people import create_person, get_or_create_project
from backendai.accounts.services.tokens import create_token, digest_of, revoke_token, user_of_token

__all__ = [
    "create_person",
    "create_token",
    "digest_of",
    "get_or_create_project",
    "revoke_token",
    "user_of_token",
]
