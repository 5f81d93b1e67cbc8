from django.apps import AppConfig


class ComputeConfig(AppConfig):
    name = "backendai.domain.compute"
    label = "compute"
