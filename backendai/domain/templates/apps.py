from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class TemplatesConfig(AppConfig):
    name = "backendai.domain.templates"
    label = "templates"

    def ready(self) -> None:
        autodiscover_modules("template_kind")
