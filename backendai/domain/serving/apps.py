from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "backendai.domain.serving"
    label = "serving"
