"""Changelogs with gaps: what is missing is never shown as absent. Truth is a replay of the log before the gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from support.properties import few_or_many

import statestore

Log = list[tuple[str, str | None]]
"""Keys and values by offset; the timestamp of offset n is n + 1."""
TOPIC = "app-counts-changelog"
OPTIONS = {"key_serde": "string", "value_serde": "string"}


def compacted(log: Log, removed: dict[str, int]) -> list[int]:
    """The offsets that are left if of each key the first few records are removed, never the newest value."""
    left = []
    for key in {key for key, _ in log}:
        mine = [n for n, (other, _) in enumerate(log) if other == key]
        most = len(mine) - (log[mine[-1]][1] is not None)
        left += mine[min(removed.get(key, 0), most) :]
    return sorted(left)


def written(folder: Path, log: Log, left: list[int], kind: str = "key-value", **options: Any) -> Any:
    lines = [
        {"key": key.encode().hex(), "value": None if value is None else value.encode().hex(), "timestamp": n + 1}
        | {"offset": n, "partition": 0}
        for n, (key, value) in enumerate(log)
        if n in left
    ]
    folder.mkdir(exist_ok=True)
    (folder / f"{TOPIC}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return statestore.inspect(folder, kind=kind, **OPTIONS, **options).table(TOPIC)


def state(log: Log) -> dict[str, str]:
    return {key: value for key, value in dict(log).items() if value is not None}


def rows(reader: Any) -> dict[str, str]:
    return {row["key"]: row["value"] for row in reader.read_all().to_pylist()}


@few_or_many(
    8,
    200,
    log=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz") | st.none()), min_size=1, max_size=14),
    removed=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
)
def test_a_compacted_log_answers_right_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, log: Log, removed: dict[str, int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    left = compacted(log, removed)
    table = written(folder, log, left)
    assert rows(table.scan()) == state(log)
    # The newest segment is never compacted, so the last record is always left.
    for offset in range(len(log) if left[-1:] == [len(log) - 1] else 0):
        ended = written(folder, log, left, until_offset=str(offset))
        for read, asked in ((table.scan, {"as_of": offset + 1}), (ended.scan, {})):
            try:
                found = rows(read(**asked))
            except statestore.NotFoundError as error:
                assert "TIME_NOT_KEPT" in str(error)
                assert len(left) < len(log)
            else:
                assert found == state(log[: offset + 1])


def test_a_value_is_unknown_until_the_record_that_replaced_it(tmp_path: Path) -> None:
    """The gap is at offset 5, and its key was written again at offset 19."""
    log: Log = [("k" if n in (5, 19) else f"u{n}", str(n)) for n in range(20)]
    table = written(tmp_path / "log", log, [n for n in range(20) if n != 5])
    assert table.table.known_from(1) == 20_000
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        table.scan(as_of=13)
    assert [row["key"] for row in table.changes().read_all().to_pylist()] == []
    with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*untilOffset"):
        written(tmp_path / "log", log, [n for n in range(20) if n != 5], until_offset="12").scan()


def test_a_log_that_begins_late_has_no_prefix_before(tmp_path: Path) -> None:
    log: Log = [(f"u{n}", "x") for n in range(120)]
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        written(tmp_path / "log", log, list(range(100, 120)), until_offset="50").scan()
    with pytest.raises(statestore.InvalidInputError, match="untilOffset names partition 3"):
        written(tmp_path / "log", log, list(range(120)), until_offset="3:50").scan()


def test_windows_are_needed_for_their_retention(tmp_path: Path) -> None:
    """Retention of the topic removes windows that nothing has replaced, and the store still showed."""
    suffix = b"\0\0\0\0\0\0\0\1\0\0\0\0".decode("latin1")
    log: Log = [(f"u{n}{suffix}", "x") for n in range(50)]
    left = list(range(20, 50))
    unknown = written(tmp_path / "log", log, left, "window")
    with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*option retention"):
        unknown.scan(as_of=50)
    known = written(tmp_path / "log", log, left, "window", retention=10)
    assert known.table.known_from(1) == 31_000
    hidden = written(tmp_path / "log", log, left, "window", retention=10, hide_expired=True)
    with pytest.raises(statestore.InvalidInputError, match="hideExpired"):
        hidden.scan(as_of=45)


def test_versions_are_kept_though_their_store_has_dropped_them(tmp_path: Path) -> None:
    log: Log = [("a", f"v{n}") for n in range(30)]
    table = written(tmp_path / "log", log, list(range(30)), "versioned", retention=5)
    assert rows(table.scan(as_of=3)) == {"a": "v2"}
