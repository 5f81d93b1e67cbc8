from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "backendai.cluster"
    label = "cluster"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415  (registers itself; Django has no earlier moment)
