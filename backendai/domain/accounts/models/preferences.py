"""The settings of pages that people choose for themselves."""

from __future__ import annotations

from django.db import models

from backendai.domain.accounts.models.people import User


class Preference(models.Model):
    """A value that a user has chosen for a page; ``name`` is the page's name for it.

    Without a row the default holds.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="preferences")
    name = models.CharField(max_length=64)
    value = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="preference_once_per_user")]

    def __str__(self) -> str:
        return self.name
