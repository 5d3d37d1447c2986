"""Settings of Spark's Python workers: after each task only new objects are searched for garbage, not all modules.

A full search is half of the cost of a small query. Python imports this file when a process starts.
"""

from __future__ import annotations

import gc
import sys
from functools import partial

if "pyspark.daemon" in sys.orig_argv:
    gc.collect = partial(gc.collect, 0)
