"""Queries of 200 batches beside captures that are killed twenty times and stopped twice, judged one after the other.

    cd tests && python -m support.capture.long_runs                        all queries, in the layouts that have them
    cd tests && python -m support.capture.long_runs --only join --seed 7   some of them, with other moments of death
    cd tests && python -m support.capture.long_runs --free                 queries that wait for no capture

Spark's old files go at once here, as they do after a minute elsewhere. Prints a line for each run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from support.capture.judged import check_run
from support.capture.runs import Judged, free, paced
from support.quick_spark import ENVIRONMENT

LAYOUTS = {
    "windows": ("deltas", "zips", "changelogs"),
    "join": ("deltas", "zips", "changelogs"),
    "variables": ("zips", "changelogs", "changelogs of format 2 with checksums"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="a part of the name of the runs")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--free", action="store_true", help="the query does not wait for the capture")
    parser.add_argument("--folder", type=Path, help="where to leave what was written")
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable})
    from pyspark.sql import SparkSession

    failed = 0
    with tempfile.TemporaryDirectory(prefix="statestore-captures-") as temporary:
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.sql.artifact.isolation.enabled": "false",
            "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
            "spark.local.dir": temporary,
            "spark.sql.warehouse.dir": temporary,
        }
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        for query, layouts in LAYOUTS.items():
            for layout in layouts:
                judged = Judged(query, layout, given.batches, given.kills, given.stops, given.seed)
                if given.only not in f"{query} {layout}":
                    continue
                folder = (given.folder or Path(temporary)) / str(judged)
                folder.mkdir()
                begin = time.monotonic()
                try:
                    ran = (free if given.free else paced)(spark, folder, judged)
                    found = check_run(ran.query, ran.warehouse, None if given.free else ran.gaps)
                    said = f"{found.captured} of {found.batches} batches captured, {found.missing} in gaps"
                except Exception as error:
                    failed += 1
                    said = f"FAILED: {type(error).__name__}: {str(error)[:3000]}"
                    traceback.print_exc()
                print(f"{query}, {layout}: {said}; {time.monotonic() - begin:.0f} s", flush=True)
        spark.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main())
