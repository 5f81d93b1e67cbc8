from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "backendai.accounts"
    label = "accounts"
