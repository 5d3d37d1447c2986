"""A page that follows a query while it runs shows at each version the state of that batch, and no other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from support.explorer.browsers import opened
from support.explorer.following import LATER, Rows, step_until

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
PREFIX = "spark.sql.streaming.stateStore."
SETTINGS = {
    f"{PREFIX}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "true",
}
BATCHES = 10


def input_of(batch: int) -> list[tuple[str, int]]:
    """The records of a batch: each has a new key and changes two old ones."""
    return [(f"key{batch:02d}", batch), ("key00", 100 + batch), (f"key{batch // 2:02d}", 1)]


def state_after(batch: int) -> Rows:
    found: dict[str, list[int]] = {}
    for each in range(batch + 1):
        for key, number in input_of(each):
            found.setdefault(key, []).append(number)
    return {key: [len(numbers), sum(numbers)] for key, numbers in found.items()}


def of_spark(rows: list[list[str]]) -> Rows:
    pairs = [(json.loads(row[0]), json.loads(row[1])) for row in rows]
    return {key["k"]: [value["count"], value["sum"]] for key, value in pairs}


@pytest.fixture
def spark_settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, former in before.items():
        spark.conf.unset(name) if former is None else spark.conf.set(name, former)


def test_a_query_that_runs(spark: SparkSession, browser: Any, tmp_path: Path, spark_settings: None) -> None:
    from pyspark.sql import functions as f

    incoming = tmp_path / "in"
    incoming.mkdir()
    rows = spark.readStream.schema("k string, n bigint").json(str(incoming)).groupBy("k")
    writer = rows.agg(f.count("n"), f.sum("n")).writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def write(batch: int) -> None:
        file = tmp_path / f"{batch}.json"
        file.write_text("".join(json.dumps({"k": key, "n": n}) + "\n" for key, n in input_of(batch)))
        file.rename(incoming / file.name)
        query.processAllAvailable()

    with contextlib.ExitStack() as stack:
        stack.callback(query.stop)
        write(0)
        made = statestore.explore(tmp_path / "checkpoint")
        stack.callback(made.stop)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        page = stack.enter_context(opened(browser, f"{made.url}&table=state"))
        badge = page.locator(".badge")
        expect(badge).to_have_text("● newest, followed", timeout=LATER)
        writes: list[Future[None]] = [pool.submit(write, batch) for batch in range(1, BATCHES)]
        assert step_until(page, BATCHES - 1, of_spark, state_after) > 1
        for each in writes:
            each.result()
        # Back, while the query goes on, and live again.
        page.get_by_label("Go to").fill("3")
        page.get_by_label("Go to").press("Enter")
        step_until(page, 3, of_spark, state_after)
        write(BATCHES)
        expect(badge).to_have_text(f"◷ the past, {BATCHES - 3} newer versions", timeout=LATER)
        step_until(page, 3, of_spark, state_after)
        page.keyboard.press("Tab")
        page.keyboard.press("l")
        step_until(page, BATCHES, of_spark, state_after)
        # Paused, what is shown stays.
        page.get_by_role("button", name="Stop following").press("Enter")
        write(BATCHES + 1)
        page.get_by_role("button", name="one version back").press("Enter")
        step_until(page, BATCHES - 1, of_spark, state_after)
        page.get_by_role("button", name="newest version").press("Enter")
        step_until(page, BATCHES, of_spark, state_after)
        page.get_by_role("button", name="Go live").press("Enter")
        step_until(page, BATCHES + 1, of_spark, state_after)
        # The life of a key that each batch changed.
        page.get_by_role("button", name="Life of a key").press("Enter")
        page.get_by_role("textbox", name="Key", exact=True).fill("key00")
        page.keyboard.press("Enter")
        status = page.locator(".life [role=status]").first
        expect(status).to_contain_text(f"{BATCHES + 2} versions in {BATCHES + 2} commits", timeout=LATER)
        write(BATCHES + 2)
        expect(status).to_contain_text(f"{BATCHES + 3} versions in {BATCHES + 3} commits", timeout=LATER)
