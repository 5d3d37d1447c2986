"""Errors as users of Spark see them: the message, without the stack of Spark's worker process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from statestore.formats.errors import StateStoreError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.")


@contextmanager
def message_only() -> Iterator[None]:
    """Let errors of the tree leave Spark's worker without a traceback, which would not help to correct an input.

    Spark's own switch for this is a variable of the worker's environment. It is set only when such an error is raised,
    and Spark ends the process after an error, so no other error loses its traceback.
    """
    try:
        yield
    except StateStoreError:
        if _is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Return whether Spark started this process for Python code of a query. Spark 4.1 sets no variable that says so."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(main, "name", "")).startswith(_WORKERS)
