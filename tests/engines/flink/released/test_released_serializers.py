"""Every serializer of Flink, as its releases wrote it for Flink's own tests: a snapshot of the serializer, and values.

The values are compared with what the serializers of Flink itself read in the same bytes, in Java.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.running.java_project import PROJECTS, compiled, jars_of
from support.flink.running.job import OPENED, OPTIONS
from support.parameters import named

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.columns.decoding import decode_cells, decode_records
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf, Opaque
from statestore.formats.flink.serializers.opaque_parts import opaque_inside, opaque_part
from statestore.formats.flink.serializers.snapshots import read_proxied
from statestore.formats.flink.snapshot.data_input import DataInput

pytestmark = pytest.mark.slow

PROJECT = "released/serializers"
RELEASES = {"1.20.3": ("-Dscala",), "2.1.0": ()}
PAIRS = {"1.20.3": 889, "2.1.0": 891}
_BASE = "org.apache.flink.api.java.typeutils.runtime."
OPAQUE = {
    "java-serializer": "org.apache.flink.runtime.state.JavaSerializer",
    "copyable-value-serializer": f"{_BASE}CopyableValueSerializer",
    "value-serializer": f"{_BASE}ValueSerializer",
    "kryo-type-serializer-empty-config": f"{_BASE}kryo.KryoSerializer",
    "kryo-type-serializer-unrelated-config-after-restore": f"{_BASE}kryo.KryoSerializer",
    "kryo-type-serializer-changed-registration-order": f"{_BASE}kryo.KryoSerializer",
    "kryo-custom-type-serializer-changed-registration-order": f"{_BASE}kryo.KryoSerializer",
}
"""Values that only the classes of Flink's tests decode, and the serializer by whose name they are shown."""

TOO_OLD = ("flink-string-array-serializer", "flink-void-serializer")
"""Serializers of 1.6, as Java objects in a frame of version 1, which Flink does not read since 1.17."""

KNOWN: Mapping[str, Any] = {
    "enum-serializerreconfig": "EMMA",
    "pojo-serializer-with-different-field-types": {"fieldValue": 911108},
    "pojo-serializer-with-modified-schema": {"id": 911108, "name": "Gordon", "age": 27, "height": 172.8},
    "pojo-serializer-with-modified-schema-in-registered-subclass": {
        "baseFieldA": 911108,
        "baseFieldB": "Gordon",
        "subclassFieldC": True,
        "subclassFieldD": 66.7,
    },
    "pojo-serializer-with-different-field-types-in-registered-subclass": {
        "age": 7,
        "favoriteColor": "BLUE",
        "married": False,
        "name": "gt",
        "fieldValue": 911108,
    },
    "two-phase-commit-sink-state-serializer": {
        "pending": {"transaction": 12, "started_ms": 1523467890},
        "to_commit": [{"transaction": 123, "started_ms": 1567234890}],
        "context": "flink",
    },
    "traversable-serializer-with-pojo": [{"count": 0, "name": "Apache"}, {"count": 1, "name": "Flink"}],
}
"""Values as Flink's tests make them, for where no release has the classes any more by which Flink would read them."""

NOT_FOR_JAVA = "traversable-serializer-with-pojo"
"""Flink compiles code of Scala to restore this one, for seconds, and fails for want of its class."""


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pairs(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one for each pair of a release's jars, and for each that `WriteSerialized` has written."""
    folder = tmp_path_factory.mktemp("pairs")
    jars = jars_of(PROJECT, folder / "maven", *RELEASES[release])
    found = 0
    for jar in jars.split(os.pathsep):
        if jar.endswith("-tests.jar"):
            with zipfile.ZipFile(jar) as archive:
                for name, snapshot, values in pairs_of(archive):
                    place = folder / ("others" if NOT_FOR_JAVA in name else "pairs") / f"{module_of(jar)} {name}"
                    place.mkdir(parents=True)
                    (place / "serializer-snapshot").write_bytes(snapshot)
                    (place / "test-data").write_bytes(values)
                    found += 1
    assert found == PAIRS[release]
    path = compiled(jars, folder, PROJECTS / PROJECT)
    run_java(path, "WriteSerialized", folder / "pairs")
    (folder / "read.jsonl").write_text(run_java(path, "ReadSerialized", folder / "pairs"))
    return folder


def pairs_of(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, snapshot and values of each pair in a jar."""
    names = set(archive.namelist())
    for name in sorted(names):
        for end, other in (("/serializer-snapshot", "/test-data"), ("-serializer-snapshot", "-serializer-data")):
            start = name.removesuffix(end)
            if start != name and start + other in names:
                text = start + ("-serializer" if end[0] == "-" else "")
                yield text.replace("/", " "), archive.read(name), archive.read(start + other)


def module_of(jar: str) -> str:
    return re.sub(r"-[\d.]+-tests\.jar$", "", Path(jar).name)


def run_java(class_path: str, program: str, folder: Path) -> str:
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    done = subprocess.run(
        ["java", *OPTIONS, *opened, "-cp", class_path, program, str(folder)],
        capture_output=True,
        check=True,
        timeout=300,
    )
    return done.stdout.decode()


def plain(value: Any, column: pa.DataType) -> Any:
    """A value of a column as the Java program prints it, without the fields of a struct that are null."""
    if value is None:
        return None
    if pa.types.is_timestamp(column):
        return round(value.timestamp() * 1000)
    if pa.types.is_struct(column):
        fields = [field for field in column if value[field.name] is not None]
        return {field.name.rpartition(".")[2]: plain(value[field.name], field.type) for field in fields}
    if pa.types.is_map(column):
        return sorted([plain(key, column.key_type), plain(each, column.item_type)] for key, each in value)
    if pa.types.is_list(column):
        return [plain(each, column.value_type) for each in value]
    if pa.types.is_binary(column):
        return np.frombuffer(value, np.int8).tolist()
    return value


def printed(value: Any, column: pa.DataType) -> Any:
    """A value that the Java program has printed, without nulls in objects, with floats of the column's width."""
    if isinstance(value, dict):
        types = {field.name.rpartition(".")[2]: field.type for field in column} if pa.types.is_struct(column) else {}
        return {key: printed(each, types.get(key, pa.null())) for key, each in value.items() if each is not None}
    if isinstance(value, list) and pa.types.is_map(column):
        return sorted(value)
    if isinstance(value, list):
        return [printed(each, getattr(column, "value_type", pa.null())) for each in value]
    return float(np.float32(value)) if column == pa.float32() else value


def decoded(kind: FlinkType, data: bytes) -> pa.Array | None:
    """The values that fill ``data``, in frames and without, which have to agree; None for those without a column."""
    values = np.frombuffer(data, np.uint8)
    starts, at = [0], 0
    while opaque_inside(kind) is None and (at < len(data) or len(starts) == 1):
        at = decode_records([kind], values, at, len(data), 1, [True], "a pair", True).at
        starts.append(at)
    ends = np.array(starts[1:] or [len(data)], np.int64)
    begins = np.array(starts[: len(ends)], np.int64)
    (framed,) = decode_cells([kind], Cells(values, begins, ends - begins), [True], "a pair")
    if opaque_inside(kind) is None:
        found = decode_records([kind], values, 0, len(data), len(ends), [True], "a pair", True)
        assert found.at == len(data) and found.rows == len(ends)
        (column,) = found.columns
        assert framed is None if column is None else column.equals(framed)
    return framed


def short_name(name: str) -> str:
    """The serializer's name without the jar and the release."""
    return re.sub(r"-?\b[12]\.\d+$|(?<=^flink-)\d\.\d+-", "", name.partition(" ")[2])


def test_each_value_is_what_flink_reads_or_bytes_by_the_serializers_name(pairs: Path, release: str) -> None:
    counts: Counter[str] = Counter()
    found = [json.loads(line) for line in (pairs / "read.jsonl").read_text().splitlines()]
    read = {each["name"]: each for each in found}
    for folder in sorted(pairs.glob("[po]*/*")):
        with named(f"{release} {folder.name}"):
            counts[check(folder, short_name(folder.name), read.get(folder.name, {"error": NOT_FOR_JAVA}))] += 1
    assert sum(counts.values()) == PAIRS[release] + 4
    assert counts["too old"] == 2
    assert counts["opaque"] == (63 if release == "1.20.3" else 77), counts
    assert counts["same"] + counts["known"] == sum(counts.values()) - counts["opaque"] - 2


def check(folder: Path, name: str, read: Mapping[str, Any]) -> str:
    source = DataInput((folder / "serializer-snapshot").read_bytes(), name)
    data = (folder / "test-data").read_bytes()
    if name in TOO_OLD and source.data[:4] == b"\0\0\0\1":
        with pytest.raises(UnsupportedError, match="version 1"):
            read_proxied(source)
        assert "VersionMismatchException" in read["error"]
        return "too old"
    kind = read_proxied(source)
    source.end()
    if isinstance(kind, KryoOf):  # the values are of classes of the tests, which makes a state of them bytes
        cell = Cells(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)]))
        with pytest.raises(UnsupportedError, match="FLINK_OPAQUE"):
            decode_cells([kind], cell, [True], "a pair")
        kind = Opaque(kind.serializer, kind.class_name)
    if (opaque := opaque_part(kind)) is not None:
        assert opaque.serializer == OPAQUE[name]
        bytes_of = decoded(kind, data)
        assert bytes_of is not None and bytes_of.to_pylist() == [data]
        return "opaque"
    assert name not in OPAQUE
    column = decoded(kind, data)
    if column is None:
        assert set(read["values"]) == {None}
        return "same"
    values = [plain(each, column.type) for each in column.to_pylist()]
    if "error" in read:
        assert values == [KNOWN[name]], read["error"]
        return "known"
    expected = [printed(each, column.type) for each in read["values"]]
    if name == "shared-buffer-node-serializer":  # Flink counts references of the edges that had none
        expected = [[each["edge"] for each in edges] for edges in expected]
    if name == "scala-try-serializer":
        assert [each.keys() for each in values] == [each.keys() for each in expected]
    else:
        assert values == expected
    return "same"
