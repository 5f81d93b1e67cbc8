from django.apps import AppConfig


class ActivityConfig(AppConfig):
    name = "backendai.activity"
    label = "activity"
