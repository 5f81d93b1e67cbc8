from django.apps import AppConfig


class PlanningConfig(AppConfig):
    name = "backendai.planning"
    label = "planning"
