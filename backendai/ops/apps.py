from django.apps import AppConfig


class OpsConfig(AppConfig):
    name = "backendai.ops"
    label = "ops"
