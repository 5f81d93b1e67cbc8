"""Base classes of admin pages for rows that the platform writes and people only read."""

from django.contrib import admin


class MadeElsewhere(admin.ModelAdmin):
    """A base of admin pages for rows that people can only view and delete."""

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


class ReadOnly(MadeElsewhere):
    """A base of admin pages for rows that people can only view."""

    def has_delete_permission(self, request, obj=None):
        return False
