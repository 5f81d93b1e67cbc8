from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "backendai.domain.usage"
    label = "usage"
