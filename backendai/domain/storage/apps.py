from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class StorageConfig(AppConfig):
    name = "backendai.domain.storage"
    label = "storage"

    def ready(self) -> None:
        autodiscover_modules("folder_claims")
