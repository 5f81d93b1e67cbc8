from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    name = "backendai.pipelines"
    label = "pipelines"
