"""What actors log comes through a named pipe as whole lines, and never makes them wait."""

import fcntl
import logging
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.actor_log import LogSpec, open_actor_log
from cluster.log_pipe import PipeHandler
from deploy.serve.log_reader import LogReader, log_pipe

HOUSES = ("cluster", "workers", "scheduler", "kv", "deploy")
F_SETPIPE_SZ = 1031


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LogReader]:
    reader = LogReader(log_pipe(tmp_path))
    yield reader
    reader.close()


@pytest.fixture
def handler(reader: LogReader, tmp_path: Path) -> Iterator[PipeHandler]:
    handler = PipeHandler(str(log_pipe(tmp_path)))
    yield handler
    handler.close()


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    before = {house: (logging.getLogger(house).level, list(logging.getLogger(house).handlers)) for house in HOUSES}
    yield
    for house, (level, handlers) in before.items():
        logger = logging.getLogger(house)
        for extra in set(logger.handlers) - set(handlers):
            logger.removeHandler(extra)
            extra.close()
        logger.setLevel(level)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("cluster.desk", logging.INFO, __file__, 1, text, None, None)


@pytest.mark.parametrize(("level", "shown"), [("info", ["a park", "a loss"]), ("warning", ["a loss"])])
def test_what_the_level_lets_pass_reaches_the_reader(
    reader: LogReader, tmp_path: Path, level: str, shown: list[str]
) -> None:
    open_actor_log(LogSpec(level=level, pipe=str(log_pipe(tmp_path))))
    logging.getLogger("cluster.chronicle").info("a park")
    logging.getLogger("scheduler.engine").warning("a loss")
    assert [line.rpartition(": ")[2] for line in reader.take()] == shown


def test_an_actor_on_another_node_does_without_the_pipe(tmp_path: Path) -> None:
    open_actor_log(LogSpec(level="info", pipe=str(tmp_path / "elsewhere")))
    assert all(not isinstance(each, PipeHandler) for each in logging.getLogger("cluster").handlers)


def test_a_pipe_that_nobody_reads_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="No such device"):
        PipeHandler(str(tmp_path / "log"))


def test_a_trace_comes_line_by_line_and_a_long_line_is_cut_to_what_is_written_whole(
    reader: LogReader, handler: PipeHandler
) -> None:
    handler.emit(record("above\n" + "x" * 9000))
    assert reader.take() == ["above", "x" * (select.PIPE_BUF - 1)]


def test_a_line_that_has_come_in_part_waits_for_its_end(reader: LogReader, handler: PipeHandler) -> None:
    os.write(reader.fd, b"first\nsec")
    assert reader.take() == ["first"]
    os.write(reader.fd, b"ond\n")
    assert reader.take() == ["second"]
    assert reader.take() == []


def test_lines_that_find_no_room_are_dropped_and_counted(reader: LogReader, handler: PipeHandler) -> None:
    capacity = fcntl.fcntl(reader.fd, F_SETPIPE_SZ, 4096)
    fitting = capacity // 1024
    for _ in range(fitting + 3):
        handler.emit(record("x" * 1023))
    assert len(reader.take()) == fitting
    handler.emit(record("room again"))
    assert reader.take() == ["3 lines of this log were dropped: its reader is slow", "room again"]


def test_a_reader_that_is_gone_harms_nobody(reader: LogReader, handler: PipeHandler) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), reader.fd)
    handler.emit(record("to nobody"))
    handler.emit(record("to nobody"))
