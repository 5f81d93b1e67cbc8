from django.apps import AppConfig


class ServingConfig(AppConfig):
    name = "backendai.serving"
    label = "serving"
