"""Ctrl-C is KeyboardInterrupt for the caller, at whatever moment it comes, and exit code 130 of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow

import statestore
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.duckdb.scan_source import ScanSource
from statestore.formats.places import interrupts
from statestore.formats.places.interrupts import held_back, stoppable

ROWS = 5_000


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """Python's own handler: a session of Spark in a test of another file leaves its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    with statestore.connect(tmp_path / "w").create_store("s", key={"k": "int"}, value={"v": "int"}) as store:
        store.put_all(pa.table({"k": range(ROWS), "v": range(ROWS), "timestamp": [1] * ROWS}))
        store.commit()
    return tmp_path / "w"


@pytest.fixture
def in_a_batch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Ctrl-C comes from inside the scan of a batch, in whichever thread DuckDB scans it, while the list is empty."""
    come: list[bool] = []
    for name in ("read", "read_marked"):
        read = getattr(VersionedTable, name)

        def reading(self: Any, *arguments: Any, read: Any = read) -> Iterator[pa.RecordBatch]:
            for batch in read(self, *arguments):
                if not come:
                    come.append(True)
                    ctrl_c()
                yield batch

        monkeypatch.setattr(VersionedTable, name, reading)
    return come


SUM = "SELECT sum(v) FROM s"
CALLS: dict[str, Callable[[Path], Any]] = {
    "sql": lambda w: statestore.sql(str(w), SUM),
    "sql of its own instance": lambda w: statestore.sql(str(w), f"SELECT random(), * FROM ({SUM})"),
    "attach": lambda w: statestore.attach(str(w)).sql(SUM).fetchall(),
    "attach in one thread": lambda w: statestore.attach(str(w)).execute("SET threads = 1").sql(SUM).fetchall(),
    "rows in DuckDB": lambda w: statestore.inspect(w).table("s").scan().to_duckdb().sum("v").fetchall(),
    "scan": lambda w: statestore.inspect(w).table("s").scan().to_arrow(),
    "report": lambda w: statestore.write_report(w, w.parent / "report.html"),
}


@pytest.mark.parametrize("call", mostly_slow(CALLS, CALLS.keys() - {"report"}))
def test_ctrl_c_inside_a_batch(call: str, warehouse: Path, in_a_batch: list[bool]) -> None:
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](warehouse)
    assert in_a_batch
    assert statestore.sql(str(warehouse), "SELECT count(*) AS n FROM s").to_pylist() == [{"n": ROWS}]


@pytest.mark.parametrize("call", ["sql", "attach"])
def test_ctrl_c_beside_a_session_of_spark(call: str, warehouse: Path, in_a_batch: list[bool]) -> None:
    """Its handler is called as well where it is the one of an attached connection."""
    seen: list[int] = []

    def signal_handler(number: int, frame: Any) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    signal_handler.__qualname__ = interrupts._OF_SPARK
    signal.signal(signal.SIGINT, signal_handler)
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](warehouse)
    assert in_a_batch and seen == ([signal.SIGINT] if call == "attach" else [])


@pytest.mark.parametrize("moment", ["accepts", "stream"])
def test_ctrl_c_while_duckdb_plans(moment: str, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = statestore.attach(str(warehouse))
    method = getattr(ScanSource, moment)
    come: list[bool] = []

    def pressed(self: Any, *arguments: Any) -> Any:
        if not come:
            come.append(True)
            ctrl_c()
        return method(self, *arguments)

    monkeypatch.setattr(ScanSource, moment, pressed)
    with pytest.raises(KeyboardInterrupt):
        connection.sql(f"{SUM} WHERE k < 7").fetchall()
    assert sys.gettrace() is None
    assert connection.sql(SUM).fetchall() == [(sum(range(ROWS)),)]


def test_a_handler_of_the_program_stays(warehouse: Path, in_a_batch: list[bool]) -> None:
    seen: list[int] = []
    own: Any = lambda number, frame: seen.append(number)  # noqa: E731
    signal.signal(signal.SIGINT, own)
    assert statestore.sql(str(warehouse), SUM).num_rows == 1
    assert statestore.attach(str(warehouse)).sql(SUM).fetchall() == [(sum(range(ROWS)),)]
    assert (seen, signal.getsignal(signal.SIGINT)) == ([signal.SIGINT], own)


def test_outside_of_duckdb_ctrl_c_comes_at_once(warehouse: Path) -> None:
    statestore.attach(str(warehouse))
    assert signal.getsignal(signal.SIGINT) is interrupts._raised_in_caller
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
        raise AssertionError("Ctrl-C did not come")


def test_work_that_is_stopped_and_work_that_is_not() -> None:
    stopped = threading.Event()

    def work() -> None:
        ctrl_c()
        stopped.wait()
        raise RuntimeError("interrupted")

    with pytest.raises(KeyboardInterrupt):
        stoppable(work, stopped.set)
    assert stoppable(lambda: 5, stopped.set) == 5
    with pytest.raises(RuntimeError, match="own"):
        stoppable(lambda: exec("raise RuntimeError('own')"), stopped.set)


def test_a_short_piece_of_work_is_not_broken_off() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        ctrl_c()
        done.append(True)
    with pytest.raises(KeyboardInterrupt), held_back():
        ctrl_c()
        raise RuntimeError("made of the Ctrl-C by a library")
    assert done


PRESSED_AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)
def hook(event, arguments):
    if event == "import" and arguments[0] == module and not pressed:
        pressed.append(True)
        os.kill(os.getpid(), signal.SIGINT)
pressed = []
sys.addaudithook(hook)
"""
ASKING = """
import statestore
try:
    {call}
except KeyboardInterrupt:
    print("KeyboardInterrupt" if pressed else "too early")
"""
IMPORTS = {
    "sql": ("_duckdb", 'statestore.sql(sys.argv[1], "SELECT count(*) FROM s")'),
    "attach": ("_duckdb", 'statestore.attach(sys.argv[1]).sql("FROM s").fetchall()'),
    "inspect": ("statestore.catalog.catalog", "statestore.inspect(sys.argv[1])"),
}


@pytest.mark.slow  # a command is interrupted at an import in every run, below
@pytest.mark.parametrize("call", IMPORTS)
def test_ctrl_c_while_a_library_is_imported(call: str, warehouse: Path) -> None:
    module, text = IMPORTS[call]
    command = [sys.executable, "-c", PRESSED_AT_IMPORT + ASKING.format(call=text), module, str(warehouse)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("KeyboardInterrupt\n", "")


@pytest.mark.quick("statestore*")
@pytest.mark.parametrize("module", ["statestore.connector.cli.main", "_duckdb"])
def test_a_command_that_is_interrupted_while_it_starts(module: str, warehouse: Path) -> None:
    program = PRESSED_AT_IMPORT + "from statestore.__main__ import main\nmain()"
    command = [sys.executable, "-c", program, module, "sql", str(warehouse), SUM]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")
