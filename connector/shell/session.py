"""The SQL shell: statements and dot commands, from a terminal or a pipe, until .quit or the end of the input."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.connector.shell.statements import cut, is_blank
from statestore.connector.sql.query import answer
from statestore.connector.terminal.forms import FORMS, show_rows
from statestore.connector.terminal.output import say, say_error
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import Query
from statestore.formats.values.types import shown_field

MODES = (*FORMS, "line")
HELP = f"""SQL statements end in ; and may have several lines. Tables take TIMESTAMP AS OF and VERSION AS OF.
.tables            list the tables
.schema [TABLE]    list the columns of a table, or of all
.mode MODE         print rows as {", ".join(MODES)}
.help              print this text
.quit              leave (as does Ctrl-D)
Ctrl-C cancels the statement that runs."""
MAX_ROWS = 1000

Prompt = Callable[[str], str]
"""Returns the next line, given a prompt; raises EOFError at the end and KeyboardInterrupt at Ctrl-C."""


@dataclass
class Session:
    """One shell over the tables at ``path``; ``failures`` counts statements and commands that failed."""

    path: str
    selected: Mapping[str, str] = field(default_factory=dict)
    mode: str = "table"
    failures: int = 0
    is_over: bool = False

    def run(self, ask: Prompt) -> None:
        """Answer line after line until the end."""
        begun = ""
        while not self.is_over:
            try:
                line = ask("    ...> " if begun.strip() else "statestore> ")
            except KeyboardInterrupt:  # drops the lines that were typed
                begun = ""
                continue
            except EOFError:
                if not is_blank(begun):
                    self.guarded(lambda text=begun: self.statement(text))  # type: ignore[misc]
                return
            if not begun.strip() and line.strip().startswith("."):
                self.guarded(lambda text=line: self.command(text))  # type: ignore[misc]
                continue
            statements, begun = cut(f"{begun}{line}\n")
            for text in statements:
                self.guarded(lambda text=text: self.statement(text))  # type: ignore[misc]
            begun = "" if is_blank(begun) else begun

    def guarded(self, work: Callable[[], None]) -> None:
        """Do something; an error or Ctrl-C is reported and counted, and does not end the shell."""
        try:
            work()
        except KeyboardInterrupt:
            self._failed("cancelled")
        except duckdb.InterruptException:
            self._failed("cancelled")
        except (StateStoreError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            self._failed(str(error))

    def _failed(self, text: str) -> None:
        self.failures += 1
        say_error(text)

    def statement(self, text: str) -> None:
        """Run one statement and print its rows."""
        found = self._answer(text)
        if found.num_columns:
            show_rows(found.schema, found.slice(0, MAX_ROWS).to_batches(), self.mode)
        if found.num_rows > MAX_ROWS:
            say(f"{found.num_rows - MAX_ROWS} more rows; the shell shows {MAX_ROWS}")

    def _answer(self, text: str) -> pa.Table:
        """Return the answer of a thread, because DuckDB notices Ctrl-C in none: this thread has it interrupted."""
        running: list[duckdb.DuckDBPyConnection] = []
        with _ctrl_c_counted() as pressed, ThreadPoolExecutor(1) as thread:
            found = thread.submit(lambda: answer(self.path, text, self.selected, started=running.append))
            while wait([found], timeout=0.05).not_done:
                for connection in running if pressed else ():  # again: what is interrupted before it runs goes on
                    with contextlib.suppress(duckdb.Error):  # closed meanwhile
                        connection.interrupt()
        if pressed:
            raise KeyboardInterrupt
        return found.result()

    def command(self, line: str) -> None:
        """Run one dot command."""
        name, *words = line.split()
        if name == ".quit" and not words:
            self.is_over = True
        elif name == ".help" and not words:
            print(HELP)
        elif name == ".tables" and not words:
            for table in self._warehouse().tables():
                print(table)
        elif name == ".schema" and len(words) < 2:
            self._schema(words)
        elif name == ".mode" and len(words) == 1 and words[0] in MODES:
            self.mode = words[0]
        elif name == ".mode":
            self._failed(f"{line.strip()}: expected .mode {', '.join(MODES)}")
        else:
            self._failed(f"{line.strip()}: expected .tables, .schema, .mode, .help or .quit")

    def _schema(self, names: list[str]) -> None:
        warehouse = self._warehouse()
        for name in names or warehouse.tables():
            columns = (f"{each.name} {shown_field(each)}" for each in warehouse.open(name).schema(Query()))
            print(f"{name} ({', '.join(columns)})")

    def _warehouse(self) -> Warehouse:
        return open_warehouse(self.path, self.selected).pin()

    def words(self) -> list[str]:
        """Return the tables and columns, for completion; what cannot be read is left out."""
        found: dict[str, None] = {}
        try:
            warehouse = self._warehouse()
            for name in (*warehouse.tables(), *warehouse.metadata_tables()):
                found[name] = None
            for name in warehouse.tables():
                found |= dict.fromkeys(warehouse.open(name).schema(Query()).names)
        except (StateStoreError, OSError):
            pass
        return list(found)


def history_file() -> Path:
    """Return the file that keeps the typed lines."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "statestore" / "shell_history"


def piped(lines: Any) -> Prompt:
    """Return a prompt that reads lines of a file and prints nothing."""

    def ask(_: str) -> str:
        line = lines.readline()
        if not line:
            raise EOFError
        return str(line).removesuffix("\n")

    return ask


@contextlib.contextmanager
def _ctrl_c_counted() -> Iterator[list[int]]:
    """Yield a list that grows with each Ctrl-C, which raises nothing meanwhile.

    An exception could come at any step, such as the start of the thread of a statement, which would then run on unseen.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()  # which alone may set handlers, and is sent Ctrl-C
    if before == signal.SIG_IGN or not is_main:
        yield pressed
        return
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
