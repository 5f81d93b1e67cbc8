from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "backendai.domain.catalog"
    label = "catalog"
