"""What holds for every test: one torch thread, fixed seeds, no network."""

import socket
from collections.abc import Callable

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# Examples come from the test itself, so a failure seen once is seen everywhere; a slow machine is no failure.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Close the network, but for loopback, unless the tests that need it were asked for."""
    if config.option.markexpr != "net":
        socket.getaddrinfo = _local_only(socket.getaddrinfo, host=lambda name, *_: name)
        socket.socket.connect = _local_only(socket.socket.connect, host=lambda _, address: address)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine or this run cannot do, with the reason."""
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if item.get_closest_marker("net") and config.option.markexpr != "net":
            item.add_marker(pytest.mark.skip(reason="needs the network: run with -m net"))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    torch.manual_seed(0)


def _local_only(call: Callable, host: Callable) -> Callable:
    def guarded(*arguments, **keywords):
        target = host(*arguments)
        # A Unix socket's address is a path, an internet address a tuple that starts with the host.
        name = target[0] if isinstance(target, tuple) else target
        local = name in (None, "localhost", "::1") or str(name).startswith(("127.", "/"))
        if not local:
            pytest.fail(f"a test tried to reach {name!r}: give it what it needs, or mark it net")
        return call(*arguments, **keywords)

    return guarded
