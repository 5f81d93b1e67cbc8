from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "backendai.api"
    label = "api"
