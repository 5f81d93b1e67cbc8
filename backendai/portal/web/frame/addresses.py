"""Builds the addresses of many objects of one kind."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.urls import reverse

_ANY = UUID(int=0)


def addresses_of(page: str) -> Callable[[UUID], str]:
    """Return a function that builds the address of an object's page from its id.

    Lists use it, as it resolves the route once instead of for every row.
    """
    before, after = reverse(page, args=[_ANY]).split(str(_ANY))
    return lambda key: f"{before}{key}{after}"
