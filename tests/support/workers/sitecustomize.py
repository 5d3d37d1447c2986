"""Settings of Spark's Python workers: modules are loaded once, and only new objects are searched for garbage.

Spark forks its workers from a daemon, and a worker that reports an error is not used again: the next one would load the
project and its dependencies anew, which is half of the cost of a test. pandas is one of them, because pyarrow looks for
it. After each task a worker searches all objects for garbage, which is half of the cost of a small query. A session's
search for installed sources finds none without `PYSPARK_PYTHON`, as for a user whose ``python3`` is another one. Python
imports this file when a process starts.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import sys
from contextlib import suppress
from functools import partial

if "pyspark.sql.worker.lookup_data_sources" in sys.orig_argv and "PYSPARK_PYTHON" not in os.environ:
    pkgutil.iter_modules = lambda *given: iter(())
elif "pyspark.daemon" in sys.orig_argv:
    gc.collect = partial(gc.collect, 0)
    with suppress(ImportError):  # processes of tests that install the project elsewhere
        import pandas  # noqa: F401

        import statestore.connector.spark.source  # noqa: F401
