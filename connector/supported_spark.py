"""The releases of Spark that are supported, checked before Spark is used and refused with one error everywhere."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError

KNOWN = ((4, 1), (4, 2), (4, 3))
"""The minor releases whose private classes the catalog and the planner are tested with, each by ``.ci/run``."""
LEAST = KNOWN[0]
_WITHOUT = (
    "without Spark, read the same tables in Python (statestore.inspect), in DuckDB (statestore.attach, statestore.sql) "
    "or on the command line (statestore --help)"
)


def check_spark() -> None:
    """Raise UnsupportedError UNSUPPORTED_SPARK where PySpark is absent or too old."""
    error = _problem()
    if error is not None:
        raise error


def check_session(spark: Any) -> None:
    """Raise InvalidInputError WRONG_INPUT if the value is not a SparkSession or is a stopped one; errors as
    `check_spark`.

    For a session of Spark Connect, the release of its server is checked as well.
    """
    check_spark()
    check_is_session(spark)
    try:
        version = str(spark.version)
    except Exception as error:  # the error of a lost server differs by release and kind of session
        raise _stopped(f"does not answer ({type(error).__name__})") from error
    context = getattr(spark, "_sc", None)  # a stopped session still reports its version
    if context is not None and getattr(context, "_jsc", context) is None:
        raise _stopped("was stopped")
    if not _is_enough(version):
        raise _unsupported(f"a session of Spark {version}", f"run it with Spark {_named(LEAST)} or later")


def unknown_release(spark: Any) -> str | None:
    """The reason why the planner and the catalog do not trust the Spark of a session; None for a known release.

    They use private classes of Spark, which another release may have changed.
    """
    version = str(spark.version)
    return None if _minor(version) in KNOWN else f"Spark {version} is none of {known_releases()}"


def known_releases() -> str:
    *others, newest = map(_named, KNOWN)
    return f"{', '.join(others)} and {newest}"


def no_catalog(reason: str, lacking: Sequence[str]) -> UnsupportedError:
    """The error for a Spark without something that a catalog needs."""
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_SPARK,
        f"{reason}, and lacks what a catalog needs: {', '.join(lacking)}; use statestore.sql(path, query, spark=spark) "
        f"or spark.read.format('arrow_statestore') without a catalog, or Spark {known_releases()}",
    )


def check_is_session(spark: Any) -> None:
    """Raise InvalidInputError WRONG_INPUT if the value is not a SparkSession; a stopped session passes."""
    if not _is_a(spark, "SparkSession"):
        raise InvalidInputError(ErrorCode.WRONG_INPUT, f"spark is {_shown(spark)}; expected a SparkSession")


def check_frame(rows: Any) -> None:
    """Raise InvalidInputError WRONG_INPUT if the value is not a DataFrame of Spark; errors as `check_spark`."""
    check_spark()
    if not _is_a(rows, "DataFrame"):
        raise InvalidInputError(ErrorCode.WRONG_INPUT, f"rows is {_shown(rows)}; expected a DataFrame of Spark")


def _stopped(state: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_INPUT, f"the SparkSession {state}; make a new one")


def stand_in() -> Callable[..., NoReturn] | None:
    """A replacement for a function that needs Spark, or None where Spark can be used.

    The replacement raises the reason when it is called, so that merely listing the package's names does not fail.
    """
    error = _problem()
    if error is None:
        return None

    def refuse(*given: Any, **named: Any) -> NoReturn:
        raise UnsupportedError(error.code, error.message)

    return refuse


def _problem() -> UnsupportedError | None:
    install = f"type: pip install 'pyspark>={_named(LEAST)}'"
    try:
        version = getattr(importlib.import_module("pyspark"), "__version__", None)
    except ImportError as error:  # of PySpark, or of a package that it needs
        absent = error.name is None or error.name == "pyspark"
        return _unsupported("no pyspark" if absent else f"a pyspark that cannot be imported ({error})", install)
    if version is None:  # Python imports any folder of that name, also one that an uninstalled package left
        return _unsupported("a folder named pyspark that is no PySpark", install)
    return None if _is_enough(str(version)) else _unsupported(f"PySpark {version}", install)


def _unsupported(version: str, cure: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_SPARK,
        f"found {version}; reads and writes in Spark need {_named(LEAST)} or later: {cure}; {_WITHOUT}",
    )


def _is_enough(version: str) -> bool:
    minor = _minor(version)
    return minor is None or minor >= LEAST  # a version of an unknown form is accepted


def _minor(version: str) -> tuple[int, int] | None:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))


def _named(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _is_a(value: Any, name: str) -> bool:
    """Return whether the value is an instance of Spark's class of that name, classic or Connect."""
    return any(kind.__name__ == name and kind.__module__.startswith("pyspark.sql") for kind in type(value).__mro__)


def _shown(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
