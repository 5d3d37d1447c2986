"""The report: its figures against the store, and the page in a real browser, with hostile names and no network."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import chromium
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import copied, fixture, manifest
from support.kafka.unpacked import unpack
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.key_text import key_filters
from statestore.connector.report import figures
from statestore.connector.report.charts import byte_axis, charts_of, count_axis, lifelines_of, time_axis, time_title
from statestore.connector.report.figures import PARTS, figures_now, figures_of
from statestore.connector.report.history import history_of, read_rows
from statestore.connector.report.key_counts import greatest, key_texts, row_bytes
from statestore.connector.report.page import script_json
from statestore.connector.report.write import write_page, write_report
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query
from statestore.formats.values.key_hash import hash_keys

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    catalog = statestore.connect(root)
    with catalog.create_store(
        "pri<ces & 'more' \"quotes\"", key={"item": "string"}, value={"price": "double", "note": "string"}
    ) as store:
        for commit in range(12):
            rows = [(f"item{n}", float(commit * n), None if n % 3 else HOSTILE) for n in range(commit + 1)]
            for key, price, note in [*rows, (HOSTILE, 1.0, "x" * (100 * commit)), ("née\u2028", -1.0, "…")]:
                store.put(key, (price, note), timestamp=T0 + commit * 60_000)
            store.put("late", (0.5, "late"), timestamp=T0 - commit * 30_000)
            store.delete("item0", timestamp=T0 + commit * 60_000 + 1)
            store.commit()
        store.compact(full=True)
    with catalog.create_store(
        "windows", kind="window", key={"page": "string", "n": "int"}, value={"hits": "bigint", "tags": "array<string>"},
        retention="1 hour", window_size="1 minute",
    ) as windows:  # fmt: skip
        for minute in range(30):
            windows.put(("home", minute % 3), (minute, ["a", None] * minute), T0 + minute * 60_000)
            windows.commit()
    catalog.create_store("empty", kind="key_value", key={"k": "binary"}, value={"v": "struct<a:int>"}).close()
    return root


@pytest.mark.slow
def test_the_page_opens_without_a_network_and_without_an_error(warehouse: Path, tmp_path: Path) -> None:
    page = statestore.write_report(warehouse, tmp_path / "report.html", title=HOSTILE)
    seen = chromium.look_at(page, tmp_path / "profile")
    assert seen.console == []
    assert 'data-ready="yes"' in seen.document
    places = re.findall(r'<div [^>]*class="chart[^>]*>', seen.document)
    assert len(places) > 12 and all('data-drawn="yes"' in place for place in places)
    drawings = re.findall(r'<svg[^>]*class="marks".*?</svg>', seen.document, re.DOTALL)
    assert len(drawings) == len(places)
    marks = [len(re.findall(r'<path[^>]* d="[^"]{4,}"', drawing)) for drawing in drawings]
    assert min(marks) > 2
    body = seen.document[seen.document.index("<main>") : seen.document.index("</main>")]
    assert "<img" not in body and "<script" not in body
    assert html.escape(HOSTILE, quote=False) in body
    assert "pri&lt;ces &amp; 'more' \"quotes\"" in body


def test_the_browser_would_tell(tmp_path: Path) -> None:
    """The browser reports errors, refused loads and missing networks, as the test above requires."""
    page = tmp_path / "page.html"
    page.write_text(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'\">"
        '<body><img src="https://example.invalid/a.png"><script>console.error("it broke"); eval("1")</script>'
    )
    said = " ".join(chromium.look_at(page, tmp_path / "profile").console)
    assert "it broke" in said and "example.invalid" in said and "unsafe-eval" in said


def test_figures_are_those_of_the_store(warehouse: Path) -> None:
    found = open_warehouse(warehouse)
    name = next(n for n in found.tables() if n.startswith("pri"))
    done: list[int] = []
    made = figures_of(found.open(name).for_plan(), (key_filters(found.open(name), "late"),), done.append)
    assert len(set(done)) > 5 and done == sorted(done) and done[-1] < PARTS
    with statestore.connect(warehouse).open_store(name) as store:
        history = store.history().read_all().to_pylist()
        versions = store.versions().to_pylist()
        for point in made.growth:
            assert point["keys"] == store.scan(version=point["version"]).read_all().num_rows
        now = {row["item"]: row for row in store.scan().read_all().to_pylist()}
    assert [p["version"] for p in made.growth] == list(range(versions[-1]["version"] + 1))
    counts = Counter(row["item"] for row in history)
    assert {row["key"]: row["versions"] for row in made.busiest} == dict(counts.most_common(15))
    assert sum(cell["rows"] for cell in made.heat) == len(history)
    assert {c["group"] for c in made.heat} <= set(range(32))
    written = sum(bar["count"] for bar in made.churn if bar["change"] == "written")
    ended = sum(bar["count"] for bar in made.churn if bar["change"] == "ended")
    assert written == sum(v["rows"] for v in versions if v["operation"] in ("commit", "write"))
    assert -ended == sum(v["closed"] for v in versions if v["operation"] in ("commit", "write"))
    sizes = {key: 8 + len((row["note"] or "").encode()) for key, row in now.items()}
    assert {row["key"]: row["bytes"] for row in made.biggest} == dict(
        sorted(sizes.items(), key=lambda item: -item[1])[:15]
    ) or [row["bytes"] for row in made.biggest] == sorted(sizes.values(), reverse=True)[:15]
    mine = sorted((r for r in history if r["item"] == "late"), key=lambda r: r["valid_from"])
    prices = [row for row in made.lifelines["late"] if row["column"] == "price"]
    assert [row["from"] for row in prices] == [int(r["valid_from"].timestamp() * 1000) for r in mine]
    assert [row["version"] for row in prices] == [r["_commit_version"] for r in mine]
    assert prices[-1]["to"] is None


KEYS = [f"k{n}" for n in range(40)]
HASHES = dict(zip(KEYS, hash_keys([pa.array(KEYS)]).tolist(), strict=True))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), max_size=60), max_size=5),
    st.sampled_from([1, 2, 7, 1 << 22]),
    st.sampled_from([0, 5, 1 << 20]),
)
def test_the_greatest_are_exact_however_few_are_held(
    batches: list[list[tuple[str, int]]], held: int, pending: int
) -> None:
    model = Counter[int]()
    for rows in batches:
        for key, weight in rows:
            model[HASHES[key]] += weight
    arrays = [(np.array([HASHES[k] for k, _ in rows], np.uint64), np.array([w for _, w in rows])) for rows in batches]
    hashes, sums = greatest(lambda: iter(arrays), 5, most=held, pending=pending)
    expected = sorted(model.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert list(zip(hashes.tolist(), sums.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("kind", "values", "sizes"),
    [
        (pa.int32(), [1, None], [8, 8]),
        (pa.string(), ["née", None], [4, 0]),
        (pa.list_(pa.string()), [["ab", "c"], [], None], [7, 0, 0]),
        (pa.struct([("a", pa.string()), ("b", pa.int64())]), [{"a": "abc", "b": 1}], [11]),
        (pa.map_(pa.string(), pa.string()), [[("k", "long")]], [8]),
    ],
)
def test_row_bytes(kind: pa.DataType, values: list[Any], sizes: list[int]) -> None:
    assert row_bytes([pa.array(values, kind)]).tolist() == sizes
    assert row_bytes([pa.array([values[0], *values], kind).slice(1)]).tolist() == sizes


@given(st.text())
def test_script_json_stays_in_its_element(text: str) -> None:
    written = script_json({text: text})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {text: text}


@pytest.mark.slow
def test_the_command(warehouse: Path, tmp_path: Path) -> None:
    code, out, err = run("report", warehouse, "-o", tmp_path / "r.html", "--store", "windows", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"report": str(tmp_path / "r.html"), "bytes": (tmp_path / "r.html").stat().st_size}
    assert "empty" not in (tmp_path / "r.html").read_text("utf-8").split("</main>")[0].split("<main>")[1]
    assert run("report", warehouse, "--store", "nope").code == 1


@pytest.mark.parametrize("key", ["late", '{"page": "home", "n": 1}'])
def test_a_key_is_given_as_for_get(warehouse: Path, tmp_path: Path, key: str) -> None:
    """Tables whose keys have other columns are left out of the search."""
    table = next(
        name for name in open_warehouse(warehouse).tables() if name.startswith("pri" if key == "late" else "w")
    )
    assert run("get", warehouse, table, key).code == 0
    page = statestore.write_report(warehouse, tmp_path / "r.html", key=key).read_text("utf-8")
    first = [keys[0]["key"] for keys in figures_in(page)["lifelines"].values()]
    assert "late" in first if key == "late" else any(name.startswith("home, 1") for name in first)


@pytest.mark.parametrize("store", [None, "windows"])
def test_a_key_that_no_table_had_is_an_error_and_no_page(warehouse: Path, tmp_path: Path, store: str | None) -> None:
    key = "nobody" if store is None else '{"page": "home", "n": 77}'
    named = [] if store is None else ["--store", store]
    code, out, err = run("report", warehouse, "-o", tmp_path / "r.html", "--key", key, *named)
    assert (code, out) == (1, "") and "KEY_NOT_FOUND" in err and (store or "never had it") in err
    code, out, err = run("report", warehouse, "-o", tmp_path / "r.html", "--key", "{}", "--store", "windows")
    assert (code, out) == (2, "") and "page, n" in err
    assert not (tmp_path / "r.html").exists()


def test_progress_moves_with_the_work(warehouse: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    statestore.write_report(warehouse, tmp_path / "r.html", progress=lambda *each: seen.append(each))
    done = [amount for _, amount, _ in seen]
    assert len(set(done)) > 15 and done == sorted(done)
    assert {total for *_, total in seen} == {3 * PARTS}
    assert {name for name, *_ in seen} == set(open_warehouse(warehouse).tables())


def commit_states(catalog: statestore.Catalog, commits: int) -> None:
    with catalog.create_store("sessions", kind="keyed", key={"user": "string"}) as store, store.backend() as backend:
        clicks, pages = backend.value_state("clicks", "bigint"), backend.map_state("pages", "string", "bigint")
        for commit in range(commits):
            for user in range(commit + 1):
                backend.set_current_key(f"user{user}")
                clicks.update(commit)
                pages.put(f"page{commit}", user)
            store.commit([backend.snapshot("full").result()])


def figures_in(page: str) -> Any:
    return json.loads(page.split('id="figures">')[1].split("</script>")[0])


def cards_of(page: str) -> dict[str, str]:
    found = re.findall(r'<div class="card"><b>([^<]*)</b><span class="soft">([^<]*)</span>', page)
    return {name: value for value, name in found}


@pytest.mark.parametrize(
    "path", mostly_slow(["stores", "keyed", "spark4.3.0-join__hdfs", "spark4.3.0-agg__rkcl", "flink"], 5)
)
def test_cards_add_up_what_the_tables_have(warehouse: Path, tmp_path: Path, path: str) -> None:
    """Cards have the rows of scans and the commits, for a store of each kind and for states of engines."""
    match path:
        case "stores":
            place = warehouse
        case "keyed":
            place = tmp_path / "keyed"
            commit_states(statestore.connect(place), 3)
        case "flink":
            place = fixture("rocksdb")
        case _:
            place = checkpoint_path(path)
    shown = cards_of(statestore.write_report(place, tmp_path / "r.html").read_text("utf-8"))
    found = statestore.inspect(place)
    rows, versions, commits = 0, 0, set()
    for name in found.tables():
        table = found.table(name)
        rows += table.scan(columns=[]).read_all().num_rows
        versions += table.history(columns=["_commit_version"]).read_all().num_rows
        commits |= {
            (row["version"], row["timestamp"])
            for row in table.versions().to_pylist()
            if row["operation"] not in ("create", "compact", "expire", "discard")
        }
    assert {name: shown[name] for name in ("rows now", "versions of rows", "commits")} == {
        "rows now": f"{rows:,}",
        "versions of rows": f"{versions:,}",
        "commits": f"{len(commits):,}",
    }


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0, [0, 1]),
        (7, [0, 2, 4, 6, 8]),
        (1023, [0, 500, 1000, 1500]),
        (5000, [0, 1024, 2048, 3072, 4096, 5120]),
        (3 << 30, [0, 1 << 30, 2 << 30, 3 << 30, 4 << 30]),
    ],
)
def test_bytes_have_labels_at_round_numbers_of_a_unit(most: int, labels: list[int]) -> None:
    axis = byte_axis(most)
    assert axis["values"] == labels
    unit = {0: "B", 1: "KiB", 3: "GiB"}[(most.bit_length() - 1) // 10 if most else 0]
    assert axis["labelExpr"].endswith(f"' {unit}'")


@pytest.mark.parametrize(
    ("seconds", "label", "title"),
    [
        (3, "%H:%M:%S.%L", "at (UTC, 2023-11-14)"),
        (600, "%H:%M:%S", "at (UTC, 2023-11-14)"),
        (7200, "%H:%M", "at (UTC, 2023-11-14 and 2023-11-15)"),
        (200 * 86_400, "%d %b", "at (UTC)"),
        (5000 * 86_400, "%Y", "at (UTC)"),
    ],
)
def test_times_have_labels_that_say_which(seconds: int, label: str, title: str) -> None:
    """T0 is 22:13:20 of its day."""
    times = (T0, T0 + seconds * 1000)
    assert time_axis(times)["format"] == label and time_title("at", times) == title


def test_times_beyond_year_9999() -> None:
    """Python's datetime has none; a state may, also in its keys."""
    ms = 253_402_300_826_495
    assert time_title("at", (ms,)) == "at (UTC, 10000-01-01)"
    times = pa.array([ms * 1000, None], pa.timestamp("us", "UTC"))
    assert key_texts([times, pa.array(["a", "b"])]).to_pylist() == ["10000-01-01 00:00:26.495+00, a", "null, b"]


def test_keys_have_the_text_that_get_takes_and_a_bar_each(tmp_path: Path) -> None:
    """Binary that holds no text is base64. Keys of one text, or of one long beginning, share no bar and no lifeline."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("bytes", key={"k": "binary"}, value={"v": "boolean"}) as store:
        store.put(b"\xff\x00", True, timestamp=T0)
        store.put(b"abc", True, timestamp=T0)
        store.commit()
    with catalog.create_store("texts", key={"a": "string", "b": "string"}, value={"v": "array<int>"}) as store:
        for count, key in enumerate([("x, y", "z"), ("x", "y, z"), ("w" * 200, "1"), ("w" * 200, "2")]):
            for version in range(count + 1):
                store.put(key, [version, None], timestamp=T0 + version)
        store.commit()
    found = open_warehouse(tmp_path)
    binary, texts = (figures_of(found.open(name).for_plan()) for name in ("bytes", "texts"))
    assert {row["key"] for row in binary.busiest} == {"base64:/wA=", "abc"}
    for typed in ("abc", "base64:/wA=", "hex:ff00"):
        assert run("get", tmp_path, "bytes", typed).code == 0
        assert run("report", tmp_path, "--out", tmp_path / "page.html", "--store", "bytes", "--key", typed).code == 0
    assert [row["versions"] for row in texts.busiest] == [4, 3, 2, 1]
    assert len({row["key"] for row in texts.busiest}) == 4 == len(texts.lifelines)
    assert {len(lines) for lines in texts.lifelines.values()} == {1, 2, 3, 4}
    assert lifelines_of(binary)["base64:/wA="]["vconcat"][0]["data"]["values"][0]["text"] == "true"
    assert lifelines_of(texts)["x, y, z"]["vconcat"][0]["data"]["values"][-1]["text"] == "[1, null]"


def test_a_history_is_read_once_if_it_fits(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are those of a history that is read each time, which one that is too great for memory is."""
    found = open_warehouse(warehouse).pin()
    name = next(n for n in found.tables() if n.startswith("pri"))
    read: list[Query] = []
    splits = type(found.open(name)).splits

    def counted(table: Any, query: Query) -> Any:
        read.extend([query] if query.mode == "history" else [])
        return splits(table, query)

    monkeypatch.setattr(type(found.open(name)), "splits", counted)
    held = figures_of(found.open(name).for_plan())
    assert len(read) == 1
    monkeypatch.setattr(figures, "history_of", lambda table, columns: history_of(table, columns, held_bytes=0))
    again = figures_of(found.open(name).for_plan())
    assert len(read) > 4
    assert again == held


@pytest.mark.parametrize(("most", "least", "labels"), [(0, 0, [0]), (1, 0, [0, 1]), (7, -6, [-10, -5, 0, 5, 10])])
def test_counts_have_whole_labels(most: int, least: int, labels: list[int]) -> None:
    assert count_axis(most, least)["values"] == labels


def test_a_page_is_of_one_version_beside_writers(tmp_path: Path) -> None:
    """Every step of the report finds a further commit. Snapshot n has n rows, and version n of the table, too."""
    path = tmp_path / "warehouse"
    catalog = statestore.connect(path)
    keyed = catalog.create_store("keyed", kind="keyed", key={"k": "bigint"})
    backend = keyed.backend()
    states = [backend.value_state(name, "bigint", default=0) for name in ("one", "two")]
    plain = catalog.create_store("plain", key={"k": "bigint"}, value={"n": "bigint"}, history_retention="1 minute")
    commits = 0

    def commit(*_: Any) -> None:
        nonlocal commits
        commits += 1
        backend.set_current_key(commits)
        for state in states:
            state.update(commits)
        backend.notify_complete(keyed.commit([backend.snapshot("full").result()]))
        plain.put(commits, commits, timestamp=T0 + commits * 40_000)
        plain.commit()
        plain.expire()

    commit()
    page = statestore.write_report(path, tmp_path / "page.html", progress=commit)
    rows = re.findall(r"<tr><t[hd][^>]*>(keyed.one|keyed.two|plain)</t[hd]>(.*?)</tr>", page.read_text(), re.DOTALL)
    cells = {name: re.findall(r"<td[^>]*>(.*?)</td>", row)[2:4] for name, row in rows}
    assert cells["keyed.one"] == cells["keyed.two"] == ["1", "1"] and cells["plain"] == ["1", "2"]
    assert commits > PARTS
    keyed.close()
    plain.close()


def test_a_report_that_can_be_written_nowhere(tmp_path: Path) -> None:
    statestore.connect(tmp_path / "w").create_store("s", key={"k": "int"}, value={"v": "int"}).close()
    wrong: list[Any] = ["", ".", "a\0b", "a\ud800", 1, None, b"x", "s3://bucket/report.html"]
    for out in wrong:
        with pytest.raises(statestore.StateStoreError, match=r"INVALID_LOCATION|UNSUPPORTED_PATH"):
            statestore.write_report(tmp_path / "w", out)
    with pytest.raises(statestore.StorageError, match=r"DISK_FAILED.*cannot write"):
        statestore.write_report(tmp_path / "w", tmp_path / "absent" / "report.html")


# Snapshots whose times are not known, or of which there is only one

RUN = "wide-rocksdb"


def test_charts_of_a_copy_without_times_go_over_versions(tmp_path: Path) -> None:
    """The files of the copy are as old as the copy, in no order of the checkpoints."""
    folder = copied("rocksdb", tmp_path)
    for metadata in folder.rglob("_metadata"):
        os.utime(metadata, (1_700_000_000, 1_700_000_000))
    page = write_page(folder, tmp_path / "report.html", {}, store="kv-long.balance", key="0").read_text()
    assert "no history" not in page and "over versions; the colour" in page
    assert all(f"<h3>{each}" in page for each in ("Rows", "Churn", "Key groups by version", "Busiest keys", "Lifeline"))
    (specs,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    figures = json.loads(specs)
    assert '"temporal"' not in specs
    growth = figures["charts"]["c0-0"]["data"]["values"]
    assert [(row["version"], row["time"], row["keys"]) for row in growth] == [(n, None, 20) for n in (2, 3, 4, 5)]


def test_figures_of_the_newest_snapshot() -> None:
    newest = manifest(RUN)["snapshots"][-1]
    found = open_warehouse(fixture(RUN) / newest["path"]).pin()
    for name in found.tables()[::4]:
        figures = figures_now(found.open(name))
        read = sum(batch.num_rows for batch in read_rows(found.open(name), Query()))
        assert figures.rows == read and figures.versions is None
        assert {heading for heading, _, _ in charts_of(figures)} <= {"Biggest keys"}


def test_a_state_that_cannot_be_read_is_said_beside_the_others(tmp_path: Path) -> None:
    newest = fixture("void-rocksdb") / manifest("void-rocksdb")["snapshots"][-1]["path"]
    page = write_report(newest, tmp_path / "report.html").read_text()
    assert "no figures: " in page and "a list of values without bytes" in page and "sets.numbers" in page
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*a list of values without bytes"):
        write_report(newest, tmp_path / "marks.html", store="sets.marks")
    assert not (tmp_path / "marks.html").exists()


# Applications of Kafka Streams


@pytest.mark.slow
def test_stores_without_a_history_do_not_stop_the_report(tmp_path: Path) -> None:
    folder = unpack("bookings", tmp_path) / "state" / "bookings"
    rooms = next(folder.glob("*/rocksdb/rooms"))
    shutil.copytree(rooms, rooms.with_name("opened"), ignore=shutil.ignore_patterns("*.sst"))
    page = write_page(folder, tmp_path / "report.html", {}).read_text()
    assert "no history: store rooms of" in page
    assert "no figures: " in page and "store 'opened' of task" in html.unescape(page)
    assert 'id="s' in page
    assert "tariffs" in page
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        write_page(folder, tmp_path / "one.html", {}, store="rooms")
