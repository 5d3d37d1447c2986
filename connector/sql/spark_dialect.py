"""Spark's SQL as this project parses it; to load Spark's dialect takes a fiftieth of a statement on DuckDB."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from statestore.connector.sql.sql_statement import PHRASES, with_second


class _SparkSQLParser(SparkParser):
    VERSION_PHRASES = {**SparkParser.VERSION_PHRASES, **PHRASES}  # noqa: RUF012

    def _parse_version(self) -> exp.Version | None:
        return with_second(super()._parse_version(), super()._parse_version)

    def _warn_unsupported(self) -> None:
        """Give no warning: statements that sqlglot cannot parse in detail are passed to Spark unchanged."""


class SparkSQL(Spark):
    """Spark's SQL with the AS OF spellings and ``$`` in names."""

    Parser = _SparkSQLParser

    class Tokenizer(Spark.Tokenizer):
        VAR_SINGLE_TOKENS = {*Spark.Tokenizer.VAR_SINGLE_TOKENS, "$"}  # noqa: RUF012
