"""Files forged under right checksums: every read returns rows or raises an error of the tree, and none ends the
process."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from support.processes.forged_stores import (
    STORE,
    Forgery,
    entry_path,
    forge,
    forgeries,
    make_store,
    reads,
    whole,
)
from support.processes.scripts import command
from support.stores.log_entries import sealed_commit, verbose_commit

import statestore
from statestore import CorruptError, StateStoreError
from statestore.catalog.log.log_checkpoint import read_log_checkpoint
from statestore.catalog.log.store_spec import decode_spec
from statestore.catalog.log.version_chunks import SCHEMA

STEP = int(os.environ.get("STATESTORE_FORGERY_STEP", "193"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "store"
    make_store(folder)
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def _wrong(folder: Path, numbers: Sequence[int]) -> list[str]:
    """The raw errors and crashes in reads of these forgeries, each with its forgery."""
    known = forgeries(folder)
    wrong: list[str] = []
    left = list(numbers)
    while left:
        given = " ".join(map(str, left))
        done = subprocess.run(command("forged_stores", folder), input=given, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        for _, number, told in (line.split() for line in lines if line.startswith("raw ")):
            wrong.append(f"{known[int(number)].name}: {base64.b64decode(told).decode()}")
        tried = [int(line.split()[1]) for line in lines if line.startswith("try ")]
        assert tried, done.stderr
        left = left[len(tried) :]
        if lines[-1] != "done":
            wrong.append(f"{known[tried[-1]].name}: ended with {done.returncode}: {done.stderr[-1500:]}")
    return wrong


@pytest.mark.parametrize("step", [9973, pytest.param(499, marks=pytest.mark.slow)])
def test_no_forged_word_ends_the_process(made: Path, step: int) -> None:
    """Some of all forgeries of framing, offsets, lengths, null counts and values, in every kind of read."""
    wrong = _wrong(made, range(7, len(forgeries(made)), step))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_no_forged_word_of_any_ends_the_process(made: Path, part: int) -> None:
    """Two of STEP of all forgeries."""
    wrong = _wrong(made, range(part * STEP // 2, len(forgeries(made)), STEP))
    assert not wrong, "\n".join(wrong)


def _newest_segment(folder: Path) -> tuple[str, pa.RecordBatch, int]:
    """Name and rows of the newest commit's segment, and the address where its bytes begin."""
    commit = verbose_commit(entry_path(folder, 3))
    name = next(m["file"]["name"] for m in commit["added"] if not m["tombstone"])
    data = pa.py_buffer((folder / STORE / name).read_bytes())
    return name, pa.ipc.open_file(data).get_batch(0), data.address


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_no_forged_offset_ends_the_process(made: Path, every: int) -> None:
    """The second word of each buffer of each column, of which offsets are the first, as large as can be."""
    columns = ["k", "text", "bytes", "parts", "by_name", "inner", "price"]
    name, batch, start = _newest_segment(made)
    seconds = {b.address - start + 4 for c in columns for b in batch.column(c).buffers() if b is not None}
    known = enumerate(forgeries(made))
    numbers = [n for n, each in known if each.file == name and each.at in seconds and each.data[3] == 0x7F]
    assert len(numbers) > 20
    wrong = _wrong(made, numbers[::every])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("column", "buffer"), [("k", 1), ("text", 1), ("bytes", 1), ("parts", 3), ("inner", 2)])
def test_a_forged_offset_is_damage(store: Path, column: str, buffer: int) -> None:
    """An offset far beyond its buffer is said to be what it is, wherever it is nested; ``buffer`` has the offsets."""
    name, batch, start = _newest_segment(store)
    at = batch.column(column).buffers()[buffer].address - start + 4
    forge(store, Forgery("an offset", name, at, b"\xff\xff\xff\x7f"))
    with pytest.raises(CorruptError, match=rf"SEGMENT_CORRUPT.*column '{column}'"):
        reads(store)["scan"]()


def _damaged(folder: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the log entry and recompute its checksum."""
    path = entry_path(folder, version)
    commit = verbose_commit(path)
    change(commit)
    path.unlink()
    path.write_bytes(sealed_commit(commit))
    shutil.rmtree(folder / STORE / "log/_checkpoint", ignore_errors=True)


VALUES: tuple[Any, ...] = (
    None,
    -1,
    10**18,
    2**63,
    10**400,
    1.5,
    "x",
    "\ud800",
    True,
    [],
    [1, 2, 3],
    {},
    "../../etc/passwd",
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, member in members for place in _places(member, (*path, name)))]


def _put(commit: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    inner: Any = commit
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value


@pytest.mark.parametrize("every", [71, pytest.param(11, marks=pytest.mark.slow)])
def test_every_field_of_a_log_entry_may_be_forged(made: Path, tmp_path: Path, every: int) -> None:
    """Each field at any depth takes values of other types and sizes: an answer or one of our errors."""
    commit = verbose_commit(entry_path(made, 3))
    places = [place for place in _places(commit) if place]
    chosen = [(place, value) for place in places for value in VALUES][::every]
    raw = []
    for number, (place, value) in enumerate(chosen):
        folder = tmp_path / str(number)
        shutil.copytree(made, folder)
        _damaged(folder, 3, partial(_put, path=place, value=value))
        names = ("scan", "filters", "as of", "get", "changes", "compact")
        raw += [f"{place} is {str(value)[:30]!r}: {error}" for error in _raw(folder, names)]
        shutil.rmtree(folder)
    assert not raw, "\n".join(raw)


STORE_FIELDS = (*VALUES, 1e400, float("nan"), "array<" * 100, "x" * 1_000)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_every_field_of_a_description_may_be_forged(made: Path, tmp_path: Path, every: int) -> None:
    """A forged file that is still a description can be used as one: each of them, or each fourth."""
    fields = json.loads((made / STORE / "store.json").read_text())
    del fields["checksum"]
    raw = []
    kept = 0
    for place, value in ((p, v) for p in _places(fields) if p for v in STORE_FIELDS):
        forged = json.loads(json.dumps(fields))
        _put(forged, place, value)
        canonical = json.dumps(forged, sort_keys=True, separators=(",", ":")).encode()
        data = json.dumps({**forged, "checksum": xxhash.xxh3_64_hexdigest(canonical)}).encode()
        try:
            decode_spec(data, "store.json")
        except StateStoreError:
            continue
        kept += 1
        if kept % every:
            continue
        folder = tmp_path / "forged"
        shutil.copytree(made, folder)
        (folder / STORE / "store.json").unlink()
        (folder / STORE / "store.json").write_bytes(data)
        raw += [f"{place} is {str(value)[:30]!r}: {error}" for error in _raw(folder, ("scan", "get", "verify"))]
        shutil.rmtree(folder)
    assert kept >= 4 and not raw, "\n".join(raw)


def _raw(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Errors of these reads that are not in the tree."""
    for name in names:
        try:
            reads(folder)[name]()
        except StateStoreError:
            pass
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"[:300]


# Log checkpoints


def _sealed(body: bytes) -> bytes:
    return body + xxhash.xxh3_64_digest(body)


def _checkpoint(folder: Path) -> Path:
    return sorted((folder / STORE / "log/_checkpoint").iterdir())[-1]


def test_a_forged_footer_of_a_checkpoint_is_never_asked(store: Path) -> None:
    """The footer only says again where the messages lie, so rubbish in it changes no answer."""
    before = reads(store)["history"]()
    body = bytearray(_checkpoint(store).read_bytes()[:-8])
    length = int.from_bytes(body[-10:-6], "little")
    body[-10 - length : -10] = b"\xff" * length
    _checkpoint(store).write_bytes(_sealed(bytes(body)))
    assert reads(store)["history"]() == before
    assert statestore.verify(store)[0].ok


def test_a_compressed_checkpoint_is_refused_before_arrow_reads_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """360 kB could become gigabytes. The log entries say the same, so the store is read without it."""
    before = reads(store)["history"]()
    path = _checkpoint(store)
    table = pa.ipc.open_file(pa.py_buffer(path.read_bytes()[:-8])).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    path.write_bytes(_sealed(sink.getvalue().to_pybytes()))
    monkeypatch.setattr(pa.ipc, "read_record_batch", lambda *_: pytest.fail("Arrow was given it"))
    with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*compressed"):
        read_log_checkpoint(f"log/_checkpoint/{path.name}", path.read_bytes())
    monkeypatch.undo()
    assert reads(store)["history"]() == before


@pytest.mark.slow
def test_no_forged_word_of_a_checkpoint_ends_a_read(made: Path) -> None:
    """Whatever word is forged, the checkpoint is read or an error of the tree is raised."""
    path = _checkpoint(made)
    content = path.read_bytes()[:-8]
    for at in range(0, len(content) - 4, 4):
        for value in (1, 2**31 - 1):
            forged = content[:at] + value.to_bytes(4, "little") + content[at + 4 :]
            try:
                read_log_checkpoint(f"log/_checkpoint/{path.name}", _sealed(forged))
            except StateStoreError as error:
                assert error.code in ("LOG_CORRUPT", "LOG_FORMAT")


DEEP = (b"[" * 200_000, b'{"a":' * 200_000, b"1" * 1_000_000, b"[" + b"1," * 10 + b"1" * 10_000 + b"]", b"\xff", b"")


@pytest.mark.parametrize("file", ["store.json", "log/00000000000000000002.json", "log/_checkpoint"])
@pytest.mark.parametrize(
    "data", DEEP, ids=["deep list", "deep object", "number", "number in a list", "no text", "empty"]
)
def test_absurd_json_is_damage(store: Path, file: str, data: bytes) -> None:
    path = store / STORE / file
    if path.is_dir():
        metadata = {b"statestore.format": b"log-checkpoint/1", b"statestore.state": data}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata)):
            pass
        path = _checkpoint(store)
        with pytest.raises(CorruptError, match="LOG_CORRUPT"):
            read_log_checkpoint(f"log/_checkpoint/{path.name}", _sealed(sink.getvalue().to_pybytes()))
        return
    shutil.rmtree(store / STORE / "log/_checkpoint")
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=re.escape(path.name)):
        reads(store)["scan"]()


def test_a_file_without_end_is_not_read_whole(store: Path) -> None:
    """A sparse file of a terabyte takes no space, and would take all memory."""
    path = entry_path(store, 2)
    shutil.rmtree(store / STORE / "log/_checkpoint")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptError, match=r"FILE_TOO_LARGE.*1099511627776"):
        reads(store)["scan"]()


def test_what_was_made_is_read(made: Path) -> None:
    """The store that is forged holds what the forgeries are about."""
    answers = {name: read() for name, read in reads(made).items() if name != "compact"}
    assert len(answers["history"]) > len(answers["scan"]) > 10  # type: ignore[arg-type]
    with statestore.connect(made).open_store(STORE, read_only=True) as store:
        assert whole(store.scan()) == answers["scan"]
