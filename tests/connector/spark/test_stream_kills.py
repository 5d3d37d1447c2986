"""Micro-batches of 20,000 rows, with kills on the way, end in exactly the batch result."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.parameters import SHARE, thinned
from support.processes.scripts import command

import statestore

BATCHES, ROWS, KEYS = 10 if SHARE == 1 else 4, 20_000, 40_000
KILLS = thinned(((2, "committed"), (5, "staged"), (8, "staged")), 1)
FEW, EARLY_KILLS = 6 if SHARE == 1 else 4, thinned(((2, "staged"), (4, "committed")), 1)
"""Each kill starts Spark once more. Where a share of the slow cases is run, one case with one kill is."""
TRUTH = """
    SELECT item, price, valid_from, valid_to FROM (
        SELECT *, timestamp AS valid_from, lead(timestamp) OVER (PARTITION BY item ORDER BY timestamp) AS valid_to
        FROM read_parquet(?)
    ) WHERE _change_type = 'insert'
"""


def write_input(folder: Path, batches: int) -> None:
    """Upserts, deletes and many late rows; no two rows of one key have one time, so their order does not matter."""
    folder.mkdir()
    random = np.random.default_rng(5)
    for number in range(batches):
        ticks = number * 3_000 + random.permutation(ROWS)
        deleted = random.random(ROWS) < 0.1
        table = pa.table(
            {
                "item": pc.binary_join_element_wise(
                    "item", pa.array(random.integers(0, KEYS, ROWS)).cast("string"), "-"
                ),
                "price": pc.if_else(pa.array(deleted), None, pa.array(random.random(ROWS))),
                "timestamp": pa.array(1_700_000_000_000 + ticks * BATCHES + number).cast(pa.timestamp("ms", "UTC")),
                "_change_type": pc.if_else(pa.array(deleted), "delete", "insert"),
            }
        )
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batches", "kills", "settings"),
    [(FEW, EARLY_KILLS, {"LEAST_ROWS": "1000"}), (BATCHES, KILLS, {})],
    ids=["tasks resolve rows", "the driver does"],
)
def test_kills_do_not_show(
    tmp_path: Path, batches: int, kills: Sequence[tuple[int, str]], settings: dict[str, str]
) -> None:
    write_input(tmp_path / "in", batches)
    catalog = statestore.connect(tmp_path / "warehouse")
    catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    places = [str(tmp_path / "in"), str(tmp_path / "warehouse" / "prices"), str(tmp_path / "checkpoint")]
    for death in (*kills, ()):
        run = command("streaming_process", *places, *death)
        environment = {**os.environ, **settings}
        ended = subprocess.run(
            run, start_new_session=True, capture_output=True, timeout=600, check=False, env=environment
        )
        assert ended.returncode == (-9 if death else 0), ended.stderr.decode()[-2000:]
    with catalog.open_store("prices") as store:
        versions = store.versions().to_pylist()
        written = [v["batch"] for v in versions if v["operation"] == "write"]
        found = store.history(columns=["item", "price", "valid_from", "valid_to"]).read_all()
        now = store.scan(columns=["item", "price", "valid_from", "valid_to"]).read_all()
    assert written == list(range(batches))
    assert len({v["application"] for v in versions if v["operation"] == "write"}) == 1
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE truth AS {TRUTH}", [str(tmp_path / "in" / "*.parquet")])
    for name, rows, where in (("found", found, "true"), ("now", now, "valid_to IS NULL")):
        connection.register(name, rows)
        expected = f"SELECT * FROM truth WHERE {where}"
        for left, right in ((expected, f"SELECT * FROM {name}"), (f"SELECT * FROM {name}", expected)):
            assert connection.sql(f"{left} EXCEPT ALL {right}").fetchall() == []
    assert found.num_rows > 17_000 * batches
    assert not (tmp_path / "warehouse" / "prices" / "staging").exists()
