"""``manage.py create_token EMAIL``: prints a bearer token, once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import WORDS
from backendai.domain.accounts.services import create_token_for

_SCOPES = "; ".join(f"{scope.value}: {words}" for scope, words in WORDS.items())


class Command(BaseCommand):
    help = "Print a new bearer token for a user; it cannot be read again. The audit log names the command line."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="the user's e-mail address")
        parser.add_argument("--name", default="command line", help="name of the token in the user's list")
        parser.add_argument(
            "--scopes",
            help=f"scopes of the token, separated by commas ({_SCOPES}); default: all, "
            "without admin for a user who administers nothing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=options["email"].lower(), is_active=True).first()
        if user is None:
            raise CommandError(f"No active user has the address {options['email']}.")
        scopes = options["scopes"]
        wanted = None if scopes is None else [each.strip() for each in scopes.split(",") if each.strip()]
        try:
            self.stdout.write(create_token_for(user, options["name"], scopes=wanted)[1])
        except UserError as error:
            raise CommandError(error.message) from error
