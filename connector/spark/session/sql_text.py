"""``USING statestore`` in the statements of Spark sessions, classic and Connect.

Spark looks for sources in the JVM first, and its own state source has that name. The provider of a temporary view is
therefore replaced in the statement before Spark gets it, by position of its token: names, strings and comments stay as
they are. ``OPTIONS (provider 'builtin', …)`` keeps Spark's own source.

The source plans such a view in a process that has no session, so what the session says goes along in the options: its
time zone and, for a path in S3, its settings of Hadoop's client. Those are arguments of the statement, because keys in
its text would be in Spark's errors.

A table in Spark's own catalog cannot be one of ours: Spark (4.3) reads such a table of a Python source without its
options, so without a path. Such a statement is an error that names what works.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from statestore.connector.options import SESSION_TIME_ZONE
from statestore.connector.spark.location import PROVIDERS, client_path, no_catalog_table, session_settings
from statestore.connector.spark.source import SOURCE_NAME
from statestore.connector.spark.undated_times import planned_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION_CATALOG = "spark_catalog"
_ROUTED = (
    ("pyspark.sql.session", "SparkSession", "sql"),
    ("pyspark.sql.catalog", "Catalog", "createTable"),
    ("pyspark.sql.connect.session", "SparkSession", "sql"),
    ("pyspark.sql.connect.catalog", "Catalog", "createTable"),
)
_ARGUMENT = "statestore_"
_BEFORE_NAME = ("IF", "NOT", "EXISTS")
_OPENING, _CLOSING = (TokenType.L_PAREN,), (TokenType.R_PAREN,)
_QUERY = (TokenType.ALIAS, TokenType.SELECT, TokenType.WITH, TokenType.SEMICOLON)


def route_sql(originals: dict[type, dict[str, Callable[..., Any]]]) -> None:
    """Route ``SparkSession.sql`` through `routed`, and refuse tables in ``Catalog.createTable`` as in statements;
    ``originals`` gets the methods to restore."""
    for module, kind, name in _ROUTED:
        # As for readers: Connect's modules are imported where there is such a session.
        if "pyspark.sql.connect.session" not in sys.modules and ".connect." in module:
            continue
        owner = getattr(importlib.import_module(module), kind)
        if owner not in originals:
            method = getattr(owner, name)
            originals[owner] = {name: method}
            setattr(owner, name, (_sql if name == "sql" else _create_table)(method))


def _create_table(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_table(self: Any, tableName: str, path: Any = None, source: Any = None, *given: Any, **named: Any) -> Any:
        ours = isinstance(source, str) and source.lower() in PROVIDERS and named.pop("provider", None) != "builtin"
        if ours and in_session_catalog(self._sparkSession, str(tableName).split(".")):
            raise no_catalog_table(str(tableName))
        return original(self, tableName, path, source, *given, **named)

    return create_table


def _sql(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sql(self: Any, sqlQuery: str, args: Any = None, **named: Any) -> Any:
        with planned_by_spark(sqlQuery):
            return original(self, *routed(self, sqlQuery, args), **named)

    return sql


def routed(spark: SparkSession, text: str, args: Any = None) -> tuple[str, Any]:
    """The statement with the provider ``statestore`` of temporary views as Spark finds it, and their options as this
    session means them; and its arguments, by name or by position, with those options that the text must not have.

    Raises UnsupportedError SESSION_CATALOG for a table of this package in Spark's own catalog.
    """
    if not isinstance(text, str) or "statestore" not in text.lower():
        return text, args
    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except SqlglotError:  # Spark reports what is wrong with it
        return text, args
    edits: list[_Edit] = []
    for created in _created(tokens):
        if created.is_builtin:
            continue
        if created.is_view:
            edits += _view_edits(spark, created, text)
        elif in_session_catalog(spark, created.name):
            raise no_catalog_table(".".join(created.name))
    marks = [token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER]
    for edit in reversed(edits):
        added, args = _with_settings(edit, args, sum(mark < edit.start for mark in marks))
        text = text[: edit.start] + added + edit.text + text[edit.end :]
    return text, args


def _with_settings(edit: _Edit, args: Any, place: int) -> tuple[str, Any]:
    """The options for the settings of an edit, and the arguments with their values: at ``place`` if they have
    positions."""
    if not edit.settings or not isinstance(args, dict | list | None):  # Spark reports what is wrong with them
        return "", args
    if isinstance(args, list) and args:
        options = "".join(f"{_literal(name)} ?, " for name in edit.settings)
        return options, [*args[:place], *edit.settings.values(), *args[place:]]
    named = {f"{_ARGUMENT}{edit.start}_{number}": value for number, value in enumerate(edit.settings.values())}
    options = "".join(f"{_literal(name)} :{mark}, " for name, mark in zip(edit.settings, named, strict=True))
    return options, {**(args if isinstance(args, dict) else {}), **named}


def in_session_catalog(spark: SparkSession, name: Sequence[str]) -> bool:
    """Return whether a table of this name, given by its parts, is one of Spark's own catalog."""
    if len(name) > 1 and name[0].lower() == SESSION_CATALOG:
        return True
    if len(name) > 1 and _is_catalog(spark, name[0]):
        return False
    return spark.catalog.currentCatalog().lower() == SESSION_CATALOG


def _is_catalog(spark: SparkSession, name: str) -> bool:
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return spark.conf.get(f"spark.sql.catalog.{name}", None) is not None
    return bool(session.sessionState().catalogManager().isCatalogRegistered(name))


@dataclass(frozen=True)
class _Edit:
    """Replace ``[start:end]`` of the statement by options for the settings, and a text."""

    start: int
    end: int
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Created:
    """A view or table that a statement creates with a provider of this package. ``options`` are the tokens between the
    parentheses of OPTIONS."""

    is_view: bool
    name: tuple[str, ...]
    provider: Token
    options: tuple[Token, ...]

    @property
    def is_builtin(self) -> bool:
        return any(value.text.lower() == "builtin" for value in self.values("provider"))

    @property
    def names(self) -> set[str]:
        """The options that are given, in lower case. A name is one string, or words with dots between them."""
        kinds, found = [token.token_type for token in self.options], set()
        for first in (i for i in range(len(kinds)) if i == 0 or kinds[i - 1] is TokenType.COMMA):
            last = first
            while kinds[last + 1 : last + 2] == [TokenType.DOT]:
                last += 2
            found.add("".join(token.text for token in self.options[first : last + 1]).lower())
        return found

    def values(self, option: str) -> Iterator[Token]:
        """The texts of an option that are one plain literal."""
        words = [token for token in self.options if token.token_type is not TokenType.EQ]
        for before, name, value, after in zip([None, *words], words, words[1:], [*words[2:], None], strict=False):
            starts = before is None or before.token_type is TokenType.COMMA
            ends = after is None or after.token_type is TokenType.COMMA
            if starts and ends and name.text.lower() == option and value.token_type is TokenType.STRING:
                yield value


def _created(tokens: Sequence[Token]) -> Iterator[_Created]:
    for index, token in enumerate(tokens):
        replaces = token.token_type is TokenType.REPLACE and (index == 0 or tokens[index - 1].text.upper() != "OR")
        if replaces or token.token_type is TokenType.CREATE:
            found = _created_at(tokens, index + 1)
            if found is not None:
                yield found


def _created_at(tokens: Sequence[Token], index: int) -> _Created | None:
    """Return the kind of object that a statement creates whose CREATE is just before ``index``."""
    words = [token.text.upper() for token in tokens]
    while index < len(words) and words[index] in ("OR", "REPLACE", "GLOBAL", "TEMP", "TEMPORARY", "EXTERNAL"):
        index += 1
    if index == len(words) or words[index] not in ("VIEW", "TABLE"):
        return None
    is_view = words[index] == "VIEW"
    index += 1
    while index < len(words) and words[index] in _BEFORE_NAME:
        index += 1
    name = [tokens[index].text] if index < len(words) else []
    while index + 2 < len(words) and tokens[index + 1].token_type is TokenType.DOT:
        index += 2
        name.append(tokens[index].text)
    using = _at_depth_0(tokens, index + 1, "USING")
    if using is None or using + 1 == len(tokens):
        return None
    provider = tokens[using + 1]
    qualified = using + 2 < len(tokens) and tokens[using + 2].token_type is TokenType.DOT
    if provider.text.lower() not in PROVIDERS or qualified:
        return None
    return _Created(is_view, tuple(name), provider, _options(tokens, using + 2))


def _options(tokens: Sequence[Token], index: int) -> tuple[Token, ...]:
    start = _at_depth_0(tokens, index, "OPTIONS")
    if start is None or start + 1 == len(tokens) or tokens[start + 1].token_type not in _OPENING:
        return ()
    end = start + 2
    while end < len(tokens) and tokens[end].token_type not in _CLOSING:
        end += 1
    return tuple(tokens[start + 2 : end])


def _at_depth_0(tokens: Sequence[Token], index: int, word: str) -> int | None:
    """The position of a word outside parentheses, before the query of the statement."""
    depth = 0
    while index < len(tokens):
        token = tokens[index]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.text.upper() == word and token.token_type is not TokenType.STRING:
            return index
        if depth == 0 and token.token_type in _QUERY:
            return None
        index += 1
    return None


def _view_edits(spark: SparkSession, view: _Created, text: str) -> Iterator[_Edit]:
    """The edits for a view, in order: its provider, the session's time zone, and relative paths."""
    yield _Edit(view.provider.start, view.provider.end + 1, SOURCE_NAME)
    if not view.options:
        return
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    path = next((value.text for value in view.values("path")), None)
    settings = {name: value for name, value in session_settings(spark, path).items() if name.lower() not in view.names}
    first = view.options[0].start
    yield _Edit(first, first, f"{SESSION_TIME_ZONE} {_literal(zone)}, ", settings)
    for value in view.values("path"):
        written = text[value.start : value.end + 1]
        path = client_path(value.text, spark)
        plain = written[1:-1] == value.text and "{" not in value.text  # no escapes, and nothing that Spark fills in
        if plain and path != value.text:
            yield _Edit(value.start, value.end + 1, _literal(path))


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
