from django.apps import AppConfig


class AppProxyConfig(AppConfig):
    name = "backendai.gates.appproxy"
    label = "appproxy"
