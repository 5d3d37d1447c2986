"""The SQL shell: statements and dot commands, from a terminal or a pipe, until .quit or the end of the input."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.connector.sql.query import answer_or_stop, for_statement
from statestore.connector.sql.sql_duckdb import FirstRows
from statestore.connector.terminal import FORMS, say, say_error, say_notice, show_rows
from statestore.formats.errors import StateStoreError
from statestore.formats.notices import notices_to
from statestore.formats.state_table import Query
from statestore.formats.values.types import shown_field

MODES = (*FORMS, "line")
HELP = f"""SQL statements end in ; and may have several lines. Tables take TIMESTAMP AS OF and VERSION AS OF.
Each statement runs by itself and reads the newest versions: one that creates, changes or sets something is refused.
From BEGIN to COMMIT or ROLLBACK, all statements read one version of each store or engine's directory.
.tables            list the tables
.schema [TABLE]    list the columns of a table, or of all
.mode MODE         print rows as {", ".join(MODES)}
.limit ROWS        print at most so many rows of an answer
.help              print this text
.quit              leave (as does Ctrl-D)
Ctrl-C cancels the statement that runs; in a pipe it also ends the shell."""
COMMANDS = (".tables", ".schema", ".mode", ".limit", ".help", ".quit")
MAX_ROWS = 1000

Prompt = Callable[[str], str]
"""Returns the next line, given a prompt; raises EOFError at the end and KeyboardInterrupt at Ctrl-C."""


@dataclass
class Session:
    """One shell over the tables at ``path``; ``failures`` counts statements and commands that failed.

    Ctrl-C ends a shell that is not ``interactive``: nobody is there to say how to go on.
    """

    path: str
    selected: Mapping[str, str] = field(default_factory=dict)
    interactive: bool = True
    mode: str = "table"
    limit: int = MAX_ROWS
    failures: int = 0
    is_over: bool = False
    _transaction: Warehouse | None = field(default=None, repr=False)

    def run(self, ask: Prompt) -> None:
        """Answer line after line until the end."""
        typed = Typed()
        while not self.is_over:
            try:
                line = ask("statestore> " if typed.is_blank else "    ...> ")
            except KeyboardInterrupt:  # drops the lines that were typed
                if not self.interactive:
                    raise
                typed = Typed()
                continue
            except EOFError:
                if not typed.is_blank:
                    self.guarded(self.statement, typed.text.strip())
                return
            if typed.is_blank and line.strip().startswith("."):
                self.guarded(self.command, line)
                continue
            if typed.is_blank and line.strip().rstrip(";").lower() in ("quit", "exit", "help"):
                word = "help" if "help" in line.lower() else "quit"
                self._failed(f"{line.strip()} is no statement; write .{word}")
                continue
            for text in typed.add(f"{line}\n"):
                self.guarded(self.statement, text)

    def guarded(self, work: Callable[[str], None], text: str) -> None:
        """Do something; an error or Ctrl-C is reported and counted, and does not end an interactive shell."""
        try:
            with notices_to(say_notice, all_threads=True):  # with each statement again
                work(text)
        except (KeyboardInterrupt, duckdb.InterruptException):
            if not self.interactive:
                raise
            self._failed("cancelled")
        except BrokenPipeError:
            raise
        except (StateStoreError, OSError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            self._failed(str(error) or type(error).__name__)

    def _failed(self, text: str) -> None:
        self.failures += 1
        say_error(text)

    def statement(self, text: str) -> None:
        """Run one statement and print its rows, or begin or end a transaction."""
        word = transaction_word(text)
        if word is not None:
            self._begin_or_end(word)
            return
        first = FirstRows(self.limit)
        found = answer_or_stop(self._opened, text, first=first)
        if found.num_columns:
            show_rows(found.schema, found.to_batches(), self.mode)
        if first.total > self.limit:
            left = first.total - self.limit
            say(f"{left} more row{'s' if left > 1 else ''}; .limit {first.total} shows all")

    def _opened(self) -> Warehouse:
        return self._transaction or for_statement(self.path, self.selected)

    def _begin_or_end(self, word: str) -> None:
        """Pin the tables, of which each source is looked at when a statement first names it, or give them up."""
        is_begin = word in BEGINS
        if is_begin and self._transaction is not None:
            self._failed(f"{word} within a transaction; end it with COMMIT or ROLLBACK first")
        elif not is_begin and self._transaction is None:
            self._failed(f"{word} without a transaction; begin one with BEGIN")
        else:
            self._transaction = self._warehouse() if is_begin else None

    def command(self, line: str) -> None:
        """Run one dot command."""
        name, *words = line.split()
        if name in (".quit", ".exit") and not words:
            self.is_over = True
        elif name == ".help" and not words:
            print(HELP)
        elif name == ".tables" and not words:
            for table in (self._transaction or self._warehouse()).tables():
                print(table)
        elif name == ".schema" and len(words) < 2:
            self._schema(words)
        elif name == ".mode" and len(words) == 1 and words[0] in MODES:
            self.mode = words[0]
        elif name == ".mode":
            self._failed(f"{line.strip()}: expected .mode {', '.join(MODES)}")
        elif name == ".limit" and len(words) == 1 and words[0].isdecimal() and int(words[0][:18]) > 0:
            self.limit = int(words[0][:18])
        elif name == ".limit":
            self._failed(f"{line.strip()}: expected .limit and a number of rows, like .limit {MAX_ROWS}")
        else:
            self._failed(f"{line.strip()}: expected {', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}")

    def _schema(self, names: list[str]) -> None:
        warehouse = self._transaction or self._warehouse()
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


def history_file() -> Path | None:
    """Return the file that keeps the typed lines, which only this user can read: they may hold keys and values. None
    if there is no place for it."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "statestore"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "shell_history"
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        file.chmod(0o600)  # one of an earlier release
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return file


def piped(lines: Any) -> Prompt:
    """Return a prompt that reads lines of a file and prints nothing. A byte order mark before them is left out."""
    mark = "\ufeff"

    def ask(_: str) -> str:
        nonlocal mark
        line = lines.readline()
        if not line:
            raise EOFError
        begun, mark = mark, ""
        return str(line).removeprefix(begun).removesuffix("\n")

    return ask


# SQL that is typed line by line, cut into statements at semicolons outside of texts, names and comments.

_PIECE = re.compile(
    r"(?P<begin>(?<![\w$])[eE]'|['\"`]|/\*|\$(?:[^\W\d]\w*)?\$)"
    r"|[^\W\d][\w$]*"  # $ within a name begins no text
    r"|(?P<comment>--[^\n]*)"
    r"|(?P<end>;)"
    r"|(?P<blank>\s+)"
    r"|.",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\.|''|(?P<end>')", re.DOTALL)  # a backslash escapes in texts that begin with E alone
_COMMENT = re.compile(r"/\*|\*/")
_BLANK = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)"
_TRANSACTION = re.compile(
    rf"{_BLANK}*(?P<word>BEGIN|START(?={_BLANK}+TRANSACTION)|COMMIT|END|ROLLBACK|ABORT)"
    rf"(?:{_BLANK}+(?:TRANSACTION|WORK|READ{_BLANK}+(?:ONLY|WRITE)))*{_BLANK}*",
    re.IGNORECASE,
)
BEGINS = ("BEGIN", "START")


def transaction_word(text: str) -> str | None:
    """Return the first word of a statement that begins or ends a transaction, in capitals; None for any other one."""
    found = _TRANSACTION.fullmatch(text)
    return None if found is None else found["word"].upper()


@dataclass
class Typed:
    """Lines that were typed and are no whole statement yet. None of them is looked at again when others follow."""

    text: str = ""
    _seen: int = field(default=0, repr=False)
    _has_words: bool = field(default=False, repr=False)
    _inside: str | None = field(default=None, repr=False)  # how the text, name or comment began that goes on
    _depth: int = field(default=0, repr=False)  # of comments in comments

    @property
    def is_blank(self) -> bool:
        """Whether there are only blanks and comments that have ended."""
        return not self._has_words and self._inside is None

    def add(self, line: str) -> list[str]:
        """Return the statements that end in a line, without their semicolons. The line has its line break."""
        self.text += line
        statements: list[str] = []
        first = 0
        while self._seen < len(self.text):
            if self._inside is not None:
                self._skip(self._inside)
                continue
            piece = _PIECE.match(self.text, self._seen)
            assert piece is not None
            self._seen = piece.end()
            if piece["begin"]:
                self._inside, self._depth = piece["begin"], 1
                self._has_words |= self._inside != "/*"
            elif piece["end"]:
                if self._has_words:
                    statements.append(self.text[first : piece.start()].strip())
                first, self._has_words = piece.end(), False
            elif not (piece["comment"] or piece["blank"]):
                self._has_words = True
        self.text, self._seen = self.text[first:], self._seen - first
        return statements

    def _skip(self, begun: str) -> None:
        """Go to the end of what has begun, or of what was typed. '' within a text is the end of one and the begin of
        another."""
        if begun == "/*":
            for sign in _COMMENT.finditer(self.text, self._seen):
                self._depth += 1 if sign[0] == "/*" else -1
                if not self._depth:
                    return self._leave(sign.end())
        elif begun in ("e'", "E'"):
            for sign in _ESCAPED.finditer(self.text, self._seen):
                if sign["end"]:
                    return self._leave(sign.end())
        else:
            end = self.text.find(begun, self._seen)
            if end >= 0:
                return self._leave(end + len(begun))
        self._seen = len(self.text)
        return None

    def _leave(self, position: int) -> None:
        self._seen, self._inside = position, None
