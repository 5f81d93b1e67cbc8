from django.apps import AppConfig


class OpsConfig(AppConfig):
    name = "backendai.ops"
    label = "ops"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415  (registers itself; Django has no earlier moment)
