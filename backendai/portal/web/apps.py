from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "backendai.portal.web"
    label = "web"
