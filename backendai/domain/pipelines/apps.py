from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    name = "backendai.domain.pipelines"
    label = "pipelines"
