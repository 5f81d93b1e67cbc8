from importlib import import_module

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "backendai.domain.accounts"
    label = "accounts"

    def ready(self) -> None:
        import_module("backendai.domain.accounts.receivers")  # which needs the models of every app
