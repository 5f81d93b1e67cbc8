from django.apps import AppConfig


class ActivityConfig(AppConfig):
    name = "backendai.domain.activity"
    label = "activity"
