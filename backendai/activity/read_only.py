"""Admin pages of what the platform writes itself: people look at it there, and do not write it."""

from django.contrib import admin


class MadeElsewhere(admin.ModelAdmin):
    """Nobody adds or changes these here; a row that stands in the way may be deleted."""

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


class ReadOnly(MadeElsewhere):
    """These have one writer, and it is not this page."""

    def has_delete_permission(self, request, obj=None):
        return False
