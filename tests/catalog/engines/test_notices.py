"""Rows that may not be the newest come with a notice through every door, or are refused.

The store is that of a real application with exactly-once which was killed: some of its memtables were flushed. Its
answers to queries just before counted 3234 records of key e3; the files have 2647.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import threading
import warnings
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rocksdict import Options, Rdict
from starlette.testclient import TestClient
from support.command_line import run
from support.kafka.unpacked import unpack
from support.paths import DATA

import statestore
from statestore.connector.explorer.answering import NOTICES
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.notices import notices_to, notify

KEY, ON_DISK = "e3", 2647


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("half-flushed")
    with tarfile.open(DATA / "kafka" / "half-flushed.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "eos28n"


def value_of(row: dict[str, Any] | None) -> int:
    assert row is not None
    value: int = row["value"]
    return value


def test_every_read_in_python_warns(half: Path) -> None:
    counts = statestore.inspect(half).table("counts")
    reads: list[Any] = [
        lambda: value_of(counts.get(KEY)),
        lambda: counts.scan(filter=("key", "=", KEY)).read_all().column("value")[0].as_py(),
        lambda: statestore.sql(str(half), f"SELECT value FROM counts WHERE key = '{KEY}'").column(0)[0].as_py(),
        lambda: statestore.attach(str(half)).sql(f"SELECT value FROM counts WHERE key = '{KEY}'").fetchall()[0][0],
    ]
    for read in reads:
        with pytest.warns(
            statestore.StateStoreWarning, match=r"counts of .*eos28n: 1_0(, 1_1)?: no offset .* changelog"
        ):
            assert read() == ON_DISK


def test_a_strict_read_is_refused(half: Path) -> None:
    for read in (
        lambda: statestore.inspect(half, strict=True).table("counts").get(KEY),
        lambda: statestore.sql(str(half), "SELECT * FROM counts", strict=True),
    ):
        with pytest.raises(statestore.NotFoundError, match=r"ROWS_UNCERTAIN.*no offset.*without it"):
            read()
    with pytest.raises(duckdb.Error, match="ROWS_UNCERTAIN"):
        statestore.attach(str(half), strict=True).sql("SELECT * FROM counts").fetchall()


def test_the_command_line_prints_a_line_beside_the_rows(half: Path, tmp_path: Path) -> None:
    path = str(half)
    for words in (["get", path, "counts", KEY], ["scan", path, "counts"], ["sql", path, "SELECT * FROM counts"]):
        found = run(*words, "--json")
        assert found.code == 0
        assert {row["value"] for row in found.rows if row["key"] == KEY} == {ON_DISK}
        lines = found.err.splitlines()
        assert lines
        assert all(line.startswith("notice: counts of ") for line in lines)
        assert len(set(lines)) == len(lines)
        refused = run(*words, "--strict")
        assert (refused.code, "ROWS_UNCERTAIN" in refused.err, refused.out) == (1, True, "")


def test_a_whole_store_has_no_notice_and_strict_reads_it(half: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eos28n"
    shutil.copytree(half, folder)
    for task, partition in (("1_0", 0), ("1_1", 1)):
        (folder / task / ".checkpoint").write_text(f"0\n1\neos28n-counts-changelog {partition} 9\n")
    assert value_of(statestore.inspect(folder, strict=True).table("counts").get(KEY)) == ON_DISK
    # A source table whose topic is its changelog has an entry of that topic.
    (folder / "1_0" / ".checkpoint").write_text("0\n1\nwords 0 9\n")
    assert value_of(statestore.inspect(folder, strict=True).table("counts").get(KEY)) == ON_DISK


def test_a_read_of_one_partition_has_its_notices_alone(half: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statestore.inspect(half).table("counts").scan(filter=("partition_id", "=", 1)).read_all()
    texts = {str(each.message) for each in caught}
    assert [": 1_1: no offset" in text for text in texts] == [True]


def test_files_that_are_not_followed_are_a_notice(half: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eos28n"
    shutil.copytree(half, folder)
    (folder / "1_0" / ".checkpoint").write_text("0\n1\neos28n-counts-changelog 0 9\n")
    shutil.rmtree(folder / "1_1")
    (folder / "1_1").symlink_to(half / "1_1")
    with pytest.warns(statestore.StateStoreWarning, match="1_1 is a link"):
        statestore.inspect(folder).table("counts").scan().read_all()


def test_stores_of_this_project_are_never_uncertain(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("prices", "versioned", key={"k": "string"}, value={"n": "long"})
    store.put({"k": "a"}, {"n": 1}, 5)
    store.commit()
    store.close()
    assert len(statestore.inspect(tmp_path, strict=True).table("prices").scan().read_all()) == 1
    found = run("scan", tmp_path, "prices", "--strict", "--json")
    assert [json.loads(line)["k"] for line in found.out.splitlines()] == ["a"]


def test_notices_go_to_the_innermost_block_once_each() -> None:
    program: list[str] = []
    own: list[str] = []
    with notices_to(program.append, all_threads=True):
        with notices_to(own.append):
            notify("s", ["x", "x"])
            notify("s", ["x", "y"])
            other = threading.Thread(target=notify, args=("s", ["z"]))
            other.start()
            other.join()
        notify("s", ["x"])
    assert (own, program) == (["s: x", "s: y"], ["s: z", "s: x"])


def test_the_explorer_says_so_beside_the_rows(half: Path, tmp_path: Path) -> None:
    """Each time, also where the rows come from a file that an earlier question wrote."""
    client = TestClient(application(OpenedPaths([str(half)], {}), RowFiles(tmp_path)))
    sql = {"sql": "SELECT * FROM counts"}
    for route, more in (
        *(("rows", given) for given in ({}, {"sort": "value"}, {"sort": "-value"}, {"sort": "value"})),
        *((f"sql{part}", sql) for part in ("", "/rows", "")),
        *(("export", {"form": form}) for form in ("csv", "arrow")),
        ("diff", {"from_": "1", "to_": "1"}),
        ("diff_rows", {"from_": "1", "to_": "1"}),
    ):
        answer = client.get(f"/api/{route}", params={"table": "counts", **more})
        assert answer.status_code == 200, answer.text
        found = json.loads(answer.headers.get(NOTICES, "[]"))
        assert [": no offset" in text for text in found] == [True], route
    assert NOTICES not in client.get("/api/versions", params={"table": "counts"}).headers
    assert NOTICES not in client.get("/api/sql", params={"sql": "SELECT 1"}).headers


def test_a_store_of_4_3_that_was_opened_again_has_a_notice(tmp_path: Path) -> None:
    """Its offsets are in the database itself, with the status of the close before."""
    state = unpack("orders", tmp_path) / "state" / "orders"
    given: dict[str, Any] = {"kind": "timestamped-key-value", "key_serde": "string", "value_serde": "long"}
    stock = statestore.inspect(state, **given).table("stock")
    rows = stock.scan().read_all()
    for path in state.glob("*/rocksdb/stock"):
        families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path)) if name != "default"}
        Rdict(str(path), Options(raw_mode=True), column_families=families).close()
    with pytest.warns(statestore.StateStoreWarning, match=r"rocksdb/stock.*: the store was opened again"):
        assert stock.scan().read_all() == rows
