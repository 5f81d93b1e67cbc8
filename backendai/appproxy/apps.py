from django.apps import AppConfig


class AppProxyConfig(AppConfig):
    name = "backendai.appproxy"
    label = "appproxy"
