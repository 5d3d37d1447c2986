"""What a user of Spark sees of our errors: the message, without the stack of Spark's worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from statestore.formats.errors import StateStoreError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


@contextmanager
def message_only() -> Iterator[None]:
    """Errors of our tree leave Spark's worker without a traceback, which says nothing to whoever named a wrong store.

    Spark's own switch for that is a variable of the worker's environment. It is set only when such an error is on its
    way, and after an error Spark ends that process, so no other error loses its traceback.
    """
    try:
        yield
    except StateStoreError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ[HIDE_TRACEBACK] = "1"
        raise
