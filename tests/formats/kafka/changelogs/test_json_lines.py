"""Lines that Arrow's parser would read wrongly, or not survive, are refused with their number."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statestore

GOOD = b'{"key":"61","value":"62","timestamp":1}\n'


def rows(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = statestore.inspect(folder).table("app-s-changelog").scan().read_all().to_pylist()
    return found


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"key":"c","value":"x\xffy","timestamp":3}\n', "no UTF-8"),
        (b'{"key":"c\xff","value":"x","timestamp":3}\n', "no UTF-8"),
        (b'{"key":"61","value":"62","timestamp":1,"x\xff":2}\n', "no UTF-8"),
        (b'{"key":"61","value":"62","timestamp":1,"x":' + b"[" * 2_000 + b"]" * 2_000 + b"}\n", "nested deeper"),
        (b'{"key":"61","value":"62","timestamp":1,"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}\n", "nested"),
        (b'{"key":"61","value":"62","timestamp":1,"x":' + b"[" * 100_000 + b"\n", "nested deeper"),
    ],
)
def test_a_line_is_refused_by_its_number(tmp_path: Path, before: int, line: bytes, found: str) -> None:
    (tmp_path / "app-s-changelog.jsonl").write_bytes(GOOD * before + line + GOOD)
    with pytest.raises(statestore.CorruptError, match=rf"FILE_DAMAGED.*line {before + 1} .*{found}"):
        rows(tmp_path)


def test_brackets_in_texts_are_no_depth(tmp_path: Path) -> None:
    line = b'{"key":"61","value":"62","timestamp":1,"note":"' + b'[{\\"' * 300 + b'"}\n'
    (tmp_path / "app-s-changelog.jsonl").write_bytes(GOOD + line)
    assert len(rows(tmp_path)) == 1


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_texts_of_other_files_are_checked(tmp_path: Path, form: str) -> None:
    size = pa.py_buffer(b"\0\0\0\0\2\0\0\0")
    key = pa.Array.from_buffers(pa.string(), 1, [None, size, pa.py_buffer(b"\xff\xfe")])
    table = pa.table({"key": key, "value": ["62"], "timestamp": pa.array([1], pa.int64())})
    path = tmp_path / f"app-s-changelog.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(statestore.CorruptError, match="FILE_DAMAGED"):
        rows(tmp_path)
