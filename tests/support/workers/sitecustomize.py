"""Spark's Python workers do not look through all they have imported for garbage after each task, only at what is new.

That search is half of what a small query costs. Python imports this file where a process starts.
"""

from __future__ import annotations

import gc
import sys
from functools import partial

if "pyspark.daemon" in sys.orig_argv:
    gc.collect = partial(gc.collect, 0)
