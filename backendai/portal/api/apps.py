from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "backendai.portal.api"
    label = "api"
