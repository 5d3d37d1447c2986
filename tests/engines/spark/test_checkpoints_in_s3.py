"""A query of Spark goes on from edited checkpoints in S3, which Hadoop's client wrote and reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.maven import jars_of
from support.object_stores.s3_server import BUCKET, S3Server
from support.paths import TESTS
from support.processes.scripts import command

import statestore

pytestmark = pytest.mark.slow

BATCHES = [
    [("a", 1), ("b", 2), ("c", 3), ("d", 4)],
    [("a", 10), ("b", 20), ("e", 50)],
    [("a", 100), ("c", 300), ("e", 500), ("f", 600)],
]


def sums_at(uri: str) -> dict[str, int]:
    rows = statestore.inspect(uri)["sum"].scan().to_arrow().to_pylist()
    return {row["key"]["k"]: row["value"]["n"] for row in rows}


def test_a_query_goes_on_in_s3(s3_server: S3Server, tmp_path: Path) -> None:
    """From an edit of its checkpoint, and from another number of partitions.

    Schema files are named as Spark named them: Hadoop knows no other scheme than s3a.
    """
    jars = jars_of(TESTS / "engines/spark/object_stores", tmp_path / "jars", "STATESTORE_SPARK_CHECKPOINTS")
    for number, batch in enumerate(BATCHES):
        (tmp_path / f"{number}.json").write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in batch))
    source, mended, rescaled = (s3_server.warehouse(f"queries/{name}") for name in ("source", "mended", "rescaled"))
    checkpoints = [f"s3a://{BUCKET}/queries/{name}" for name in ("source", "mended", "rescaled")]
    text = "UPDATE sum SET value.n = 7 WHERE key.k = 'a'; DELETE FROM sum WHERE key.k = 'b'"
    steps = [
        (None, checkpoints[0]),
        ((source, mended, text, {}), checkpoints[1]),
        ((mended, rescaled, "", {"partitions": "3"}), checkpoints[2]),
    ]
    keys = (s3_server.access_key, s3_server.secret_key)
    run = command("query_in_s3", jars, s3_server.endpoint, *keys, tmp_path, json.dumps(steps))
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    sums = Counter(dict(BATCHES[0]))
    assert sums_at(source) == sums
    del sums["b"]
    sums["a"] = 7
    sums.update(dict(BATCHES[1]))
    assert sums_at(mended) == sums
    sums.update(dict(BATCHES[2]))
    assert sums_at(rescaled) == sums

    folder = s3_server.folder / BUCKET / "queries"
    for name, checkpoint in zip(("source", "mended", "rescaled"), checkpoints, strict=True):
        files = [path for path in (folder / name).rglob("_metadata/v2/*") if path.is_file()]
        uris = [uri for path in files for store in json.loads(path.read_text().partition("\n")[2])["stateStoreInfo"]
                for uri in store["stateSchemaFilePaths"]]  # fmt: skip
        assert uris and all(uri.startswith(f"{checkpoint}/state/0/_stateSchema/") for uri in uris), (name, uris)
        assert all((folder / uri.removeprefix(f"s3a://{BUCKET}/queries/")).is_file() for uri in uris)
