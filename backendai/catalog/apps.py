from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "backendai.catalog"
    label = "catalog"
