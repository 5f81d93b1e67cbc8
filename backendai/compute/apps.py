from django.apps import AppConfig


class ComputeConfig(AppConfig):
    name = "backendai.compute"
    label = "compute"
