"""The room as a Django app, for its management command."""

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "backendai.files"
