"""The image of network holders: one program of a few bytes that waits. It is generated here, never pulled."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile

IMAGE = "local/backendai-holder:1"  # increase the number when the image or the holders' configuration changes
_PROGRAM = "wait"
_LOADED_AT = 0x400000
# The whole program: wait for a signal, in a loop.
_WAIT_X86_64 = "b822000000 0f05 ebf7"  # pause()
_WAIT_AARCH64 = "000080d2 010080d2 020080d2 030080d2 280980d2 010000d4 faffff17"  # ppoll(NULL, 0, NULL, NULL)
_MACHINES = {"x86_64": ("amd64", 62, _WAIT_X86_64), "aarch64": ("arm64", 183, _WAIT_AARCH64)}
ARCHITECTURES = frozenset(_MACHINES)


def image_archive(architecture: str) -> bytes:
    """Return the holders' image as an archive for ``docker load``; the same bytes at every call."""
    name, machine, code = _MACHINES[architecture]
    layer = _tar({_PROGRAM: _executable(machine, bytes.fromhex(code))})
    config = {
        "architecture": name,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [f"/{_PROGRAM}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    described = json.dumps(config).encode()
    file = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [{"Config": file, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar({file: described, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


def _executable(machine: int, code: bytes) -> bytes:
    """Return an ELF file with one segment of code."""
    entry = 64 + 56
    size = entry + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    begin = _LOADED_AT + entry
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, machine, 1, begin, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOADED_AT, _LOADED_AT, size, size, 0x10000)
    return header + segment + code


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
