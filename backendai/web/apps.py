from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "backendai.web"
    label = "web"
