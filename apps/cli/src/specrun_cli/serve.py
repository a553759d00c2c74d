"""`specrun serve`: an engine behind HTTP, on this machine unless told otherwise."""

import ipaddress
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrun import Sampling
from specrun_cli.opening import MODEL, announce, enough_memory, open_engine

HOST = "127.0.0.1"
PORT = 8000
ROWS = 8
QUEUE = 64
TOKENS = 512
_SECONDS_TO_FINISH = 5


def run(given: Mapping[str, Any]) -> None:
    """Load, listen, serve until interrupted."""
    try:
        import uvicorn

        from specrun_cli.server.app import build
        from specrun_cli.server.worker import Worker
    except ImportError as error:
        raise ValueError(
            f"serve: {error.name} is not installed, expected the extra serve; pip install 'specrun-cli[serve]'"
        ) from error
    rows, queue = given.get("batch_size", ROWS), given.get("queue", QUEUE)
    for name, value in (
        ("batch-size", rows),
        ("queue", queue),
        ("max-new-tokens", given.get("max_new_tokens", 1)),
    ):
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")
    host, port = given.get("host", HOST), given.get("port", PORT)
    listening = _listen(host, port)
    with listening, enough_memory():
        engine = open_engine(given, Sampling(temperature=1.0))
        model = given.get("model", MODEL)
        announce(model)
        name = Path(model).name if Path(model).is_dir() else model
        worker = Worker(engine, rows=rows, most_waiting=queue)
        app = build(engine, worker, model=name, tokens=given.get("max_new_tokens", TOKENS))
        shown = f"[{host}]" if ":" in host else host
        print(
            f"specrun: {name} with {engine.method.name} at http://{shown}:{listening.getsockname()[1]}/v1"
            f"{'' if _is_loopback(host) else ', open to the network and without a password'}; Ctrl-C stops it",
            file=sys.stderr,
            flush=True,
        )
        settings = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=_SECONDS_TO_FINISH
        )
        uvicorn.Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise ValueError(f"port: got {port}, expected 0 (any free one) to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ValueError(
            f"port: got {port} on {host} ({error.strerror or error}), expected a free one; choose it with --port"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
