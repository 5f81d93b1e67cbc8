"""``manage.py create_token EMAIL``: prints a bearer token, once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backendai.accounts.models import User
from backendai.accounts.services import create_token


class Command(BaseCommand):
    help = "Print a new bearer token for a user; it cannot be read again."
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--name", default="command line")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=options["email"].lower(), is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['email']}.")
        self.stdout.write(create_token(user, options["name"])[1])
