"""Ports are taken from where the system hands out none, and only those in a row that nobody has."""

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.ports import free_port


@pytest.fixture
def listener() -> Iterator[tuple[socket.socket, int]]:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        yield other, port


def test_a_free_port_is_none_that_the_system_hands_out() -> None:
    first_handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 1024 < free_port(count=2) < first_handed_out - 1


@pytest.mark.parametrize(("before", "count", "passed"), [(0, 1, True), (1, 2, True), (2, 3, True), (1, 1, False)])
def test_a_row_with_a_taken_port_is_passed_by(
    listener: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch, before: int, count: int, passed: bool
) -> None:
    _, taken = listener
    draws = iter([taken - before - 20_000, free_port(count=3) - 20_000])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(draws))
    assert (free_port(count=count) != taken - before) == passed


def test_where_all_are_taken_the_system_is_asked(
    listener: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, taken = listener
    monkeypatch.setattr(secrets, "randbelow", lambda _: taken - 20_000)
    assert free_port() != taken
