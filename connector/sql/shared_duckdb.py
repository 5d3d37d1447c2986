"""One DuckDB instance for the statements of a process that cannot leave anything behind in it.

To start an instance takes most of the time of a short call. A statement therefore runs on a cursor of a shared one if
it only selects, from tables of the warehouse, with functions without side effects. Its views are temporary: they belong
to the cursor and end with it. The instance has no access to files, the network and Python variables, and its
configuration is locked. Every other statement gets an instance of its own (docs/decisions/018-duckdb.md).

Whether a statement is one of them is judged by its raw text and never by a syntax tree, because DuckDB may read the
text differently than the parser that made the tree. What is not understood counts as having side effects.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import duckdb

from statestore.connector.duckdb.attach import connect

_FIRST = re.compile(r"\s*\(*\s*(select|from|with)\b", re.IGNORECASE | re.ASCII)
_COMMENT = re.compile(r"--|/\*")
_CHANGES = re.compile(
    r"(?<![A-Za-z0-9_])(alter|attach|call|checkpoint|copy|create|delete|detach|drop|execute|export|import|insert|install"
    r"|into|load|merge|pivot|pivot_longer|pivot_wider|pragma|prepare|reset|set|truncate|unpivot|update|use|vacuum"
    r")(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_BEFORE_PARENTHESIS = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)|([^ \t\r\n]))?[ \t\r\n]*\(")
_OPERATORS = frozenset("=<>+-*/%,([{|&:")
_WORDS = frozenset(
    re.findall(
        "[a-z_]+",
        """
        all and any array as at between by case cast changes coalesce columns decimal distinct else end except
        exclude exists extract filter from generate_series group grouping having history if ifnull in intersect
        interval is join lateral like limit map materialized not nullif numeric of offset on or order over
        partition position range replace row select some split_part struct substring then trim try_cast union
        unnest using values varchar when where with within
        """,
    )
)
_FUNCTIONS = """
    SELECT lower(function_name), bool_and(function_type IN ('scalar', 'aggregate', 'window')
        AND coalesce(stability, '') IN ('CONSISTENT', 'CONSISTENT_WITHIN_QUERY'))
    FROM duckdb_functions() GROUP BY ALL
"""


class OwnInstanceNeeded(Exception):
    """A statement turned out to need an instance of its own; nothing was read for it yet."""


@dataclass(frozen=True)
class _Instance:
    connection: duckdb.DuckDBPyConnection

    @cached_property
    def harmless(self) -> frozenset[str]:
        """Functions without side effects. To list them takes longer than to start the instance."""
        with self.connection.cursor() as cursor:
            functions = cursor.execute(_FUNCTIONS).fetchall()
        return frozenset(name for name, is_harmless in functions if is_harmless)


class _Process:
    """The instance of this process; a fork makes one of its own."""

    instance: _Instance | None = None
    lock = threading.Lock()


def runs_shared(text: str) -> bool:
    """Return whether a statement can leave nothing behind in the instance that runs it, and can read nothing that
    another left."""
    if not text.isascii() or _FIRST.match(text) is None or _COMMENT.search(text) or _CHANGES.search(text):
        return False
    for word, sign in _BEFORE_PARENTHESIS.findall(text):
        if word and word.lower() not in _WORDS and word.lower() not in _instance().harmless:
            return False
        if sign and sign not in _OPERATORS:
            return False
    return True


@contextlib.contextmanager
def shared_cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own to the shared instance. An error after which DuckDB refuses to go on gives the instance
    up, and is raised as OwnInstanceNeeded."""
    instance = _instance()
    try:
        with instance.connection.cursor() as cursor:
            yield cursor
    except (duckdb.FatalException, duckdb.InternalException):
        with _Process.lock:
            if _Process.instance is instance:
                _Process.instance = None
        raise OwnInstanceNeeded from None


def _instance() -> _Instance:
    with _Process.lock:
        if _Process.instance is None:
            connection = connect(allow_external_access=False)
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            connection.execute("SET GLOBAL lock_configuration = true")
            _Process.instance = _Instance(connection)
        return _Process.instance


def _close() -> None:
    _Process.instance = None


def _in_fork() -> None:
    """Leave the instance to the parent: the child lacks the threads that closing it would wait for."""
    if _Process.instance is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_Process.instance))
    _Process.instance = None
    _Process.lock = threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_in_fork)
