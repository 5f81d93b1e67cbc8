from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "backendai.cluster"
    label = "cluster"
