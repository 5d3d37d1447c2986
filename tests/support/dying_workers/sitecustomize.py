"""Puts the steps of `deaths` into Spark's Python processes: tasks, planners, commits and readers of streams.

Python imports this file when a process starts that has this folder in PYTHONPATH. The driver is left as it is. The file
of ``support/workers``, whose place this one takes, is run before.
"""

from __future__ import annotations

import sys
from typing import Any

LEAST_ROWS = 1_000
"""Tasks with more rows resolve them themselves."""


def install_in_readers() -> None:
    """Change what plans streams: all that a process runs which Spark starts for each stream, and awaits for 10 s."""
    from statestore.connector.spark.source import StateStoreStreamReader
    from support.dying_workers.deaths import dying_call

    for name in ("initialOffset", "latestOffset", "partitions", "commit"):
        setattr(StateStoreStreamReader, name, dying_call(getattr(StateStoreStreamReader, name), f"source {name}"))


def install() -> None:
    from statestore.catalog.engines.engine_table import EngineTable
    from statestore.catalog.reads.versioned_table import VersionedTable
    from statestore.catalog.stores.versioned import task_writes
    from statestore.connector.asof import join_on_arrow
    from statestore.connector.keyed import task
    from statestore.connector.spark import frame_writer, writer
    from statestore.connector.tracked import kept_batches
    from support.dying_workers.deaths import dying_call, dying_reader, dying_stage

    def change(place: Any, name: str, made: Any) -> None:
        setattr(place, name, made)

    task_writes.MIN_ROWS = LEAST_ROWS
    for table in (VersionedTable, EngineTable):
        change(table, "read", dying_reader(table.read, "read"))
    for module in (task, kept_batches):
        change(module, "read_emitted", dying_reader(module.read_emitted, "emitted"))
    for module in (frame_writer, writer):
        change(module, "stage", dying_stage(module.stage))
    for kind in (writer.StateStoreStreamWriter, writer.StateStoreWriter):
        change(kind, "commit", dying_call(kind.commit, "commit"))
    change(writer, "commit_staged", dying_call(writer.commit_staged, "commit of the store"))
    change(join_on_arrow, "join_table", dying_call(join_on_arrow.join_table, "join"))
    change(task, "run_partition", dying_reader(task.run_partition, "keyed"))


if any(argument.startswith("pyspark.") for argument in sys.orig_argv):
    from support.workers import sitecustomize  # noqa: F401

    if "pyspark.sql.worker.lookup_data_sources" not in sys.orig_argv:
        install_in_readers()
        if "pyspark.sql.streaming.python_streaming_source_runner" not in sys.orig_argv:
            install()
