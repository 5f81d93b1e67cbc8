from django.apps import AppConfig


class StorageConfig(AppConfig):
    name = "backendai.storage"
    label = "storage"
