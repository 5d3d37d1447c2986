"""Checksums beside a file: a read returns the bytes that were written, or raises an error."""

from __future__ import annotations

import shutil
import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

import statestore
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.spark.checkpoint.crc_files import SideChecksums, VerifiedStream, side_checksums

CHUNK = 512

in_both_forms = pytest.mark.usefixtures("compiled_or_not")


def side(data: bytes, chunk: int = CHUNK) -> bytes:
    """The content that Hadoop writes into ``.name.crc``."""
    values = [zlib.crc32(data[at : at + chunk]) for at in range(0, len(data), chunk)]
    return b"crc\0" + struct.pack(f">i{len(values)}I", chunk, *values)


def put(path: Path, data: bytes) -> SideChecksums:
    path.write_bytes(data)
    path.with_name(f".{path.name}.crc").write_bytes(side(data))
    found = side_checksums(str(path))
    assert found is not None
    return found


@in_both_forms
@settings(deadline=None)  # the first example may load compiled code
@given(st.binary(max_size=3000), st.lists(st.integers(-1, 1500), max_size=6), st.integers(1, 600))
def test_reads_of_any_size_give_the_file(data: bytes, sizes: list[int], chunk: int) -> None:
    values = side(data, chunk)[8:]
    checksums = SideChecksums(chunk, np.frombuffer(values, ">u4").astype(np.uint32))
    stream = VerifiedStream(BytesIO(data), checksums, "file")
    plain = BytesIO(data)
    for size in [*sizes, -1, 10]:
        assert stream.read(size) == plain.read(size)


@in_both_forms
@pytest.mark.parametrize("size", [1, CHUNK, 3 * CHUNK, 2_000_000])
def test_damage_is_told_with_its_place(size: int, tmp_path: Path) -> None:
    path, data = tmp_path / "1.delta", bytes(range(256)) * (size // 256 + 1)
    checksums = put(path, data[:size])
    for at in {0, size // 2, size - 1}:
        damaged = bytearray(data[:size])
        damaged[at] ^= 1
        stream = VerifiedStream(BytesIO(bytes(damaged)), checksums, str(path))
        with pytest.raises(CorruptError, match=rf"1\.delta: bytes {at // CHUNK * CHUNK}-.*\.1\.delta\.crc says"):
            while stream.read(100_000):
                pass


@in_both_forms
@pytest.mark.parametrize("change", [-CHUNK, -1, 1, CHUNK])
def test_another_size_is_damage(change: int, tmp_path: Path) -> None:
    data = bytes(5 * CHUNK)
    checksums = put(tmp_path / "1.delta", data)
    other = data[:change] if change < 0 else data + bytes(change)
    with pytest.raises(CorruptError, match="SPARK_STATE_FILE"):
        VerifiedStream(BytesIO(other), checksums, "1.delta").read()


@pytest.mark.parametrize("text", [b"", b"crc\0", b"crc\0\0\0\0\0", b"crc\0\0\0\2\0\1", b"{}", b"crc\0\xff\xff\xff\xff"])
def test_what_is_no_file_of_checksums_is_left_alone(text: bytes, tmp_path: Path) -> None:
    (tmp_path / ".file.crc").write_bytes(text)
    assert side_checksums(str(tmp_path / "file")) is None


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfssn", "spark4.3.0-agg__rkcl"])
def test_no_file_of_a_checkpoint_is_read_when_it_was_changed(name: str, tmp_path: Path) -> None:
    """Each file that a read needs, with a letter or byte changed that no format would notice."""
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    whole = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".sst"]
    for file in whole:
        put(file, file.read_bytes())
    files = [file for file in whole if not file.is_relative_to(path / "state/0/1")]  # one partition is like the other
    rows = scanned(path)
    noticed = []
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
        said = ""
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            try:
                assert scanned(path) == rows  # not needed for this read, or a snapshot that can be done without
            except CorruptError as error:
                said = str(error)
        said += "".join(str(each.message) for each in notices)
        if said:
            assert f"{file}: bytes " in said and "crc says" in said
            noticed.append(file.name)
        file.write_bytes(data)
    assert {"schema", "metadata", "5"} <= set(noticed)
    assert any(file.endswith((".snapshot", ".zip")) for file in noticed)


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_log_that_differs_is_read_with_a_notice(log: str, tmp_path: Path) -> None:
    """Spark reads it through Hadoop's FileContext, which verifies nothing. Zips and table files it does verify."""
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "checkpoint"))
    rows = scanned(path)
    file = path / log / "5"
    put(file, file.read_bytes())
    file.with_name(".5.crc").write_bytes(side(b"other"))
    with pytest.warns(statestore.StateStoreWarning, match=rf"{log}/5: .*Spark does not verify this file"):
        assert scanned(path) == rows
    with pytest.raises(NotFoundError, match=rf"ROWS_UNCERTAIN.*{log}/5"):
        statestore.inspect(path, strict=True).table("state").scan()


def scanned(path: Path) -> list[str]:
    return sorted(map(str, statestore.inspect(path).table("state").scan().read_all().to_pylist()))
