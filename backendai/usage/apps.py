from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "backendai.usage"
    label = "usage"
