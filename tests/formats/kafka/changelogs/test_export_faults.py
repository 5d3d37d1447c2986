"""Exports as shells, browsers and consoles write them: other encodings and times, arrays, cut files."""

from __future__ import annotations

import bz2
import io
import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statestore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.kafka.changelogs.export_streams import _lines_of

TOPIC = "shop-counts-changelog"
FIRST = 1_714_550_400_000
KCAT = b"".join(
    b'{"topic":"t","partition":0,"offset":%d,"tstype":"create","ts":%d,"broker":0,"key":"k%d","payload":"v"}\n'
    % (n, FIRST + n, n)
    for n in range(3)
)
CONSOLE = b"".join(b"CreateTime:%d\tPartition:0\tOffset:%d\tk%d\tv\n" % (FIRST + n, n, n) for n in range(3))
CSV = b"key,value,ts\n" + b"".join(b"k%d,v,%d\n" % (n, FIRST + n) for n in range(3))
ROWS = [(b"k%d" % n, b"v", FIRST + n) for n in range(3)]
BY_NAME = {"record_columns": "key=key,value=value,timestamp=ts"}
UTF8 = {"record_text": "utf-8"}
MARK = b"\xef\xbb\xbf"


def rows(folder: Path, content: bytes, suffix: str, **options: Any) -> list[Any]:
    (folder / f"{TOPIC}{suffix}").write_bytes(content)
    table = statestore.inspect(folder, key_serde="bytes", value_serde="bytes", **options).table(TOPIC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = table.scan().read_all().to_pylist()
    times = [row["timestamp"] and round(row["timestamp"].timestamp() * 1000) for row in found]
    return sorted((row["key"], row["value"], time) for row, time in zip(found, times, strict=True))


@pytest.mark.parametrize(
    ("content", "suffix", "options"),
    [
        (MARK + KCAT, ".jsonl", {}),
        (KCAT.replace(b"\n", b"\r\n"), ".jsonl", {}),
        (MARK + CONSOLE, ".txt", {}),
        (MARK + CSV, ".csv", BY_NAME),
        (CSV.replace(b"\n", b"\r\n"), ".csv", BY_NAME),
        (bz2.compress(KCAT), ".jsonl.bz2", {}),
        (pa.Codec("lz4").compress(CONSOLE, asbytes=True), ".txt.lz4", {}),
        (b"[" + KCAT.strip().replace(b"\n", b",") + b"]", ".json", {}),
        (json.dumps(list(map(json.loads, KCAT.splitlines())), indent=2).encode(), ".json", {}),
    ],
)
def test_the_same_records_in_other_clothes(tmp_path: Path, content: bytes, suffix: str, options: Any) -> None:
    assert rows(tmp_path, content, suffix, **options) == ROWS


def test_times_as_texts(tmp_path: Path) -> None:
    """ISO 8601 with an offset, as consoles in browsers have them, or digits."""
    texts = ["2024-05-01T08:00:00Z", "2024-05-01T10:00:00.001+02:00", "2024-05-01 08:00:00.002Z"]
    lines = [
        {"topic": "t", "key": f"k{n}", "value": "v", "timestamp": text, "headers": {}} for n, text in enumerate(texts)
    ]
    written = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert rows(tmp_path, written, ".jsonl", **UTF8) == ROWS
    assert rows(tmp_path, json.dumps(lines).encode(), ".jsonl", **UTF8) == ROWS
    csv = b"key,value,ts\n" + b"".join(f'"k{n}","v","{text}"\n'.encode() for n, text in enumerate(texts))
    (tmp_path / f"{TOPIC}.jsonl").unlink()
    assert rows(tmp_path, csv, ".csv", **BY_NAME) == ROWS
    assert rows(tmp_path, csv[:-1], ".csv", **BY_NAME) == ROWS  # the last field is whole


RECORD = b'{"key":"k","value":"v","timestamp":1}'
REFUSED: list[Any] = [
    (KCAT.decode().encode("utf-16"), ".jsonl", {}, "KAFKA_RECORDS", "UTF-16.*iconv"),
    (CONSOLE.decode().encode("utf-16-be"), ".txt", {}, "KAFKA_RECORDS", "do not say what they are"),
    (CONSOLE.replace(b"\n", b"\r\n"), ".txt", {}, "KAFKA_RECORDS", "CR LF.*tr -d"),
    (b"CreateTime:1\ta:1,b:2\tv\nCreateTime:2\ta:1\tw\n", ".txt", {}, "KAFKA_RECORDS", "do not say what they are"),
    (CONSOLE + b"Processed a total of 3 messages\n", ".txt", {}, "KAFKA_RECORDS", "line 4: found 1 fields"),
    (KCAT + b"% Reached end of topic t [0] at offset 3\n", ".jsonl", {}, "FILE_DAMAGED", "cannot be read as json"),
    (CSV[:-1], ".csv", BY_NAME, "FILE_DAMAGED", "ends within a line"),
    (CSV + b'k4,"v', ".csv", BY_NAME, "FILE_DAMAGED", "ends within a text in quotes"),
    (b"key,value,value\nk,v,w\n", ".csv", {"record_columns": "key=key,value=value"}, "KAFKA_RECORDS", "two columns"),
    (b"key,value,ts\nk,v,1714550400\n", ".csv", BY_NAME, "KAFKA_RECORDS", "seems to be seconds"),
    (b"key,value,ts\nk,v,1714550400000000\n", ".csv", BY_NAME, "KAFKA_RECORDS", "seems to be microseconds"),
    (b"key,value,ts\nk,v,2024-05-01 08:00:00\n", ".csv", BY_NAME, "KAFKA_RECORDS", "row 0: .*with an offset"),
    (b"[" + RECORD, ".json", UTF8, "FILE_DAMAGED", "ends within its array"),
    (b"[" + RECORD[:-9], ".json", UTF8, "FILE_DAMAGED", "ends within its array"),
    (b"[" + RECORD + b"] x", ".json", UTF8, "FILE_DAMAGED", "cannot be read as json"),
    (
        b'{"key":"k","value":{"n":1},"timestamp":1}\n',
        ".jsonl",
        UTF8,
        "KAFKA_RECORDS",
        r"as value.*'\.value \|= tojson'",
    ),
    (bz2.compress(KCAT)[:-9], ".jsonl.bz2", {}, "FILE_DAMAGED", "bz2 stream is damaged or cut"),
    (
        pa.Codec("lz4").compress(KCAT, asbytes=True)[:-9],
        ".jsonl.lz4",
        {},
        "FILE_DAMAGED",
        "lz4 stream is damaged or cut",
    ),
]


@pytest.mark.parametrize(("content", "suffix", "options", "code", "message"), REFUSED)
def test_what_may_be_wrong_is_refused(
    tmp_path: Path, content: bytes, suffix: str, options: Any, code: str, message: str
) -> None:
    with pytest.raises(statestore.StateStoreError, match=message) as error:
        rows(tmp_path, content, suffix, **options)
    assert error.value.code == ErrorCode(code) and TOPIC in str(error.value)


def test_an_empty_array_has_no_records(tmp_path: Path) -> None:
    assert rows(tmp_path, b"[]", ".json", **UTF8) == []


@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.text(alphabet='\\"[]{},\n é', max_size=6) | st.none(), max_size=3)
    ),
    st.sampled_from([None, 0, 2]),
    st.integers(1, 40),
)
def test_elements_of_an_array_are_lines(elements: list[Any], indent: int | None, step: int) -> None:
    """In parts of any size, of which each may begin within a text."""

    class Parts(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(step, size or step))

    with _lines_of(Parts(json.dumps(elements, indent=indent).encode())) as file:
        assert [json.loads(line) for line in file.read().splitlines() if line.strip()] == elements
