"""nginx and haproxy before the replicas of an endpoint, each with one worker, as the app proxy is one process."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench._portal import free_port, say

_NGINX = """
user root; daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 600s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; keepalive_requests 1000000;
  upstream least {{ least_conn; {servers} keepalive 64; }}
  upstream turns {{ {servers} keepalive 64; }}
  server {{ listen 127.0.0.1:{least}; location / {{ proxy_pass http://least; }} }}
  server {{ listen 127.0.0.1:{turns}; location / {{ proxy_pass http://turns; }} }}
}}
"""
_HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
listen least
  bind 127.0.0.1:{least}
  balance leastconn
{servers}
"""


@contextlib.contextmanager
def balancers(addresses: Sequence[str], folder: Path) -> Iterator[dict[str, int]]:
    """Give the ports of those that are installed: ``nginx`` (least_conn), ``nginx_turns`` and ``haproxy``."""
    ports = {name: free_port() for name in ("nginx", "nginx_turns", "haproxy")}
    servers = " ".join(f"server {one};" for one in addresses)
    nginx, haproxy = folder / "nginx.conf", folder / "haproxy.cfg"
    nginx.write_text(_NGINX.format(folder=folder, servers=servers, least=ports["nginx"], turns=ports["nginx_turns"]))
    lines = "\n".join(f"  server m{number} {one}" for number, one in enumerate(addresses))
    haproxy.write_text(_HAPROXY.format(least=ports["haproxy"], servers=lines))
    commands = {"nginx": ["-c", str(nginx)], "haproxy": ["-db", "-f", str(haproxy)]}
    with contextlib.ExitStack() as leaving:
        for program, arguments in commands.items():
            if (found := shutil.which(program, path="/usr/local/sbin:/usr/sbin:/usr/bin")) is None:
                say(f"{program} is not installed: nothing to compare with (apt install {program})")
                ports = {name: port for name, port in ports.items() if not name.startswith(program)}
                continue
            process = subprocess.Popen([found, *arguments])
            leaving.callback(process.wait)
            leaving.callback(process.terminate)
        yield ports
