from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "backendai.domain.planning"
    label = "planning"
