from importlib import import_module

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "backendai.accounts"
    label = "accounts"

    def ready(self) -> None:
        import_module("backendai.accounts.receivers")  # which needs the models of every app
