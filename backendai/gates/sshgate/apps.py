from django.apps import AppConfig


class SshGateConfig(AppConfig):
    name = "backendai.gates.sshgate"
    label = "sshgate"
