"""What every command has: the profile and a client of its portal, made when it is first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import click

from bai.config import Profile, read_profile
from bai.output import clean
from bai.sdk.call import Problem
from bai.sdk.client import Client


@dataclass
class State:
    """The global options of a command line."""

    profile_name: str = ""
    is_verbose: bool = False

    @cached_property
    def profile(self) -> Profile:
        """The chosen profile."""
        return read_profile(self.profile_name)

    @cached_property
    def portal(self) -> Client:
        """A signed-in client. Raises Problem without a sign-in."""
        profile = self.profile
        if not (profile.url and profile.token):
            raise Problem(401, {"code": "not-signed-in", "detail": f"You are not signed in (profile {profile.name})."})
        return client_of(profile)


def client_of(profile: Profile) -> Client:
    """Return a client for a profile."""
    return Client(profile.url, profile.token, profile.name, ca=profile.ca, is_checked=not profile.insecure)


pass_state = click.make_pass_decorator(State, ensure=True)


def tell(text: str) -> None:
    """Write a line for people, which is no part of the output."""
    click.echo(clean(text), err=True)
