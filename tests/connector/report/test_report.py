"""The report: its figures against the store, and the page in a real browser, with hostile names and no network."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import chromium
from support.command_line import run

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report import key_counts
from statestore.connector.report.figures import figures_of
from statestore.connector.report.key_counts import greatest, row_bytes
from statestore.connector.report.page import script_json
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
    figures = figures_of(found, name, ("late",))
    with statestore.connect(warehouse).open_store(name) as store:
        history = store.history().read_all().to_pylist()
        versions = store.versions().to_pylist()
        for point in figures.growth:
            assert point["keys"] == store.scan(version=point["version"]).read_all().num_rows
        now = {row["item"]: row for row in store.scan().read_all().to_pylist()}
    assert [p["version"] for p in figures.growth] == list(range(versions[-1]["version"] + 1))
    counts = Counter(row["item"] for row in history)
    assert {row["key"]: row["versions"] for row in figures.busiest} == dict(counts.most_common(15))
    assert sum(cell["rows"] for cell in figures.heat) == len(history)
    assert {c["group"] for c in figures.heat} <= set(range(32))
    written = sum(bar["count"] for bar in figures.churn if bar["change"] == "written")
    ended = sum(bar["count"] for bar in figures.churn if bar["change"] == "ended")
    assert written == sum(v["rows"] for v in versions if v["operation"] in ("commit", "write"))
    assert -ended == sum(v["closed"] for v in versions if v["operation"] in ("commit", "write"))
    sizes = {key: 8 + len((row["note"] or "").encode()) for key, row in now.items()}
    assert {row["key"]: row["bytes"] for row in figures.biggest} == dict(
        sorted(sizes.items(), key=lambda item: -item[1])[:15]
    ) or [row["bytes"] for row in figures.biggest] == sorted(sizes.values(), reverse=True)[:15]
    mine = sorted((r for r in history if r["item"] == "late"), key=lambda r: r["valid_from"])
    prices = [row for row in figures.lifelines["late"] if row["column"] == "price"]
    assert [row["from"] for row in prices] == [int(r["valid_from"].timestamp() * 1000) for r in mine]
    assert [row["version"] for row in prices] == [r["_commit_version"] for r in mine]
    assert prices[-1]["to"] is None


KEYS = [f"k{n}" for n in range(40)]
HASHES = dict(zip(KEYS, hash_keys([pa.array(KEYS)]).tolist(), strict=True))


@settings(deadline=None)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_counts, "MAX_HASHES", held)
        patch.setattr(key_counts, "PENDING_ROWS", pending)
        hashes, sums = greatest(lambda: iter(arrays), 5)
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
