from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class ClusterConfig(AppConfig):
    name = "backendai.domain.cluster"
    label = "cluster"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415  (registers itself; Django has no earlier moment)

        autodiscover_modules("node_jobs")
