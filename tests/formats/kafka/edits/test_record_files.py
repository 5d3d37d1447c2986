"""The lines of records that an edit writes are those that Python's json would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.kafka.edits import FolderTarget

from statestore.formats.kafka.edits.edited_records import RECORDS, TopicRecords
from statestore.formats.kafka.edits.record_files import write_records

HEADER = st.fixed_dictionaries({"name": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
RECORD = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 2**31 - 1),
        "timestamp": st.integers(0, 2**62),
        "key": st.binary(max_size=4),
        "value": st.none() | st.binary(max_size=4),
        "headers": st.lists(HEADER, max_size=2),
    }
)


def hexed(cell: bytes | None) -> str | None:
    return None if cell is None else cell.hex()


def line(row: dict[str, Any]) -> str:
    headers = [{"name": each["name"], "value": hexed(each["value"])} for each in row["headers"]]
    front = {name: row[name] for name in ("partition", "timestamp")}
    return json.dumps({**front, "key": row["key"].hex(), "value": hexed(row["value"]), "headers": headers}) + "\n"


@given(rows=st.lists(RECORD, max_size=6), cut=st.integers(0, 2))
def test_lines_of_records(tmp_path_factory: Any, rows: list[dict[str, Any]], cut: int) -> None:
    folder: Path = tmp_path_factory.mktemp("records")
    topic = TopicRecords("t", pa.Table.from_pylist(rows, RECORDS).slice(cut))
    sizes = write_records(topic, FolderTarget(folder))
    expected = "".join(map(line, rows[cut:]))
    assert (folder / "t.jsonl").read_text("utf-8") == expected
    assert sizes == {"t.jsonl": len(expected.encode())}
