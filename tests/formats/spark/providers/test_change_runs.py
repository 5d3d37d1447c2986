"""Many small files of changes: which files are opened, how often folders are listed, and what damaged ones answer.

Answers are compared with what was written (``SmallFiles``), and the bytes of the files with those of Spark.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from support.checkpoints.small_checkpoints import (
    SmallFiles,
    lz4_stream,
    partition_of_word,
    record,
    side_file,
    write_small_checkpoint,
)
from support.checkpoints.spark_state_fixtures import MORE, unpacked
from support.rows_read import BytesRead

import statestore
from statestore.connector.report import write
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.places import listings
from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder
from statestore.formats.places.kept_results import forget_results
from statestore.formats.spark.checkpoint.checkpoint_files import data_files, spark_folder
from statestore.formats.spark.providers import change_runs as runs
from statestore.formats.spark.providers.change_files import changelog_changes, delta_changes
from statestore.formats.spark.providers.change_runs import change_runs
from statestore.formats.spark.providers.compression import decompressed, whole_lz4

BATCHES, PARTITIONS = 9, 6
FORMS = {"delta": False, "changelog": True}
END = b"\xff\xff\xff\xff"


@pytest.fixture(scope="module", params=FORMS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SmallFiles:
    folder = tmp_path_factory.mktemp("small") / "checkpoint"
    return write_small_checkpoint(folder, BATCHES, PARTITIONS, rows=4, words=20, changelogs=FORMS[request.param])


def table(made: SmallFiles) -> Any:
    return statestore.inspect(made.folder).table("state")


def rows(batches: Any) -> dict[str, tuple[int, float]]:
    return {row["key"]["word"]: tuple(row["value"].values()) for row in batches.read_all().to_pylist()}


def changes_of(made: SmallFiles, first: int = 0) -> Counter[Any]:
    """The changes of the batches from the first on, of a plain model."""
    found: Counter[Any] = Counter()
    for batch in range(first, len(made.batches)):
        before = made.state(batch - 1) if batch else {}
        for word, row in made.batches[batch].items():
            old = before.get(word)
            if old is None and row is not None:
                found["insert", word, row, batch] += 1
            elif row is None and old is not None:
                found["delete", word, old, batch] += 1
            elif row is not None and old is not None and row != old:
                found["update_preimage", word, old, batch] += 1
                found["update_postimage", word, row, batch] += 1
    return found


def read_changes(found: Any) -> Counter[Any]:
    return Counter(
        (row["_change_type"], row["key"]["word"], tuple(row["value"].values()), row["_commit_version"])
        for row in found.read_all().to_pylist()
    )


@pytest.mark.parametrize("archive", ["checkpoints", "more_checkpoints"])
def test_the_files_are_byte_for_byte_those_of_spark(archive: str) -> None:
    folder = unpacked() if archive == "checkpoints" else unpacked(MORE)
    checked = 0
    for path in [*folder.rglob("*.delta"), *folder.rglob("*.changelog")]:
        content = path.read_bytes()
        if content.startswith(b"LZ4Block") and len(content) < 4096:
            plain = b"".join(decompressed(BytesIO(content), str(path)))
            assert whole_lz4(content, 1 << 20) == plain
            assert lz4_stream(plain) == content
            side = path.with_name(f".{path.name}.crc")
            assert not side.exists() or side.read_bytes() == side_file(content)
            checked += 1
    assert checked > 50


def test_states_and_changes_are_those_that_were_written(made: SmallFiles) -> None:
    found = table(made)
    for batch in (0, 5, BATCHES - 1):
        assert rows(found.scan(version=batch)) == made.state(batch)
    assert read_changes(found.changes()) == changes_of(made)
    assert read_changes(found.changes(start_version=4)) == changes_of(made, 4)


def test_the_history_of_a_key_is_that_of_its_writes(made: SmallFiles) -> None:
    word = max(made.batches[-1], key=lambda each: sum(each in written for written in made.batches))
    found = table(made).history(key={"word": word}).read_all().to_pylist()
    expected = [written[word] for written in made.batches if written.get(word) is not None]
    assert [tuple(row["value"].values()) for row in sorted(found, key=lambda row: row["valid_from"])] == expected


@pytest.mark.parametrize(("old", "new"), [(BATCHES - 2, BATCHES - 1), (BATCHES - 1, BATCHES - 2), (2, 7), (0, 8)])
def test_a_difference_is_that_of_both_states(made: SmallFiles, old: int, new: int) -> None:
    before, after = made.state(old), made.state(new)
    expected = {word: (before.get(word), after.get(word)) for word in {*before, *after}}
    found = table(made).diff(old, new).read_all().to_pylist()
    shown = {
        row["key"]["word"]: tuple(
            None if row[side] is None else tuple(row[side]["value"].values()) for side in ("_old", "_new")
        )
        for row in found
    }
    assert shown == {word: sides for word, sides in expected.items() if sides[0] != sides[1]}
    assert len(found) == len(shown)


@pytest.mark.local_files
def test_each_file_is_opened_once_and_each_folder_listed_once(
    made: SmallFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = made.folder / "state"
    assert _opened(state, lambda: rows(table(made).scan()), monkeypatch) == BATCHES * PARTITIONS
    assert _opened(state, lambda: read_changes(table(made).changes()), monkeypatch) == BATCHES * PARTITIONS


@pytest.mark.local_files
def test_questions_open_what_they_touch(made: SmallFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    state = made.folder / "state"
    word = next(iter(made.batches[-1]))
    assert _opened(state, lambda: table(made).get({"word": word}), monkeypatch) == BATCHES
    assert _opened(state, lambda: table(made).history(key={"word": word}).read_all(), monkeypatch) == BATCHES
    assert _opened(state, lambda: table(made).versions(), monkeypatch) == 0
    assert _opened(state, lambda: statestore.inspect(made.folder), monkeypatch) == 0
    touched = {partition_of_word(word, PARTITIONS) for word in made.batches[-1]}
    most = PARTITIONS + len(touched) * BATCHES  # the newest file of each, and all of those that have something
    difference = table(made).diff(BATCHES - 2, BATCHES - 1)
    assert _opened(state, lambda: difference.read_all(), monkeypatch) <= most
    first = iter(table(made).changes())
    assert _opened(state, lambda: next(first), monkeypatch) <= 4 * BATCHES


def _opened(folder: Path, ask: Callable[[], Any], patch: pytest.MonkeyPatch) -> int:
    """The number of files of changes that a question opens, and of their checksums as many."""
    listed: Counter[str] = Counter()
    listing = listings._listed_locally

    def counted(path: str) -> Any:
        listed[path] += 1
        return listing(path)

    reading = BytesRead(folder)
    forget_results()  # what was kept of the files is not opened again
    with patch.context() as patched:
        patched.setattr(listings, "_listed_locally", counted)
        reading.of(ask)
    twice = {
        path for path, count in listed.items() if "/state/0/" in path and Path(path).name.isdecimal() and count > 1
    }
    assert not twice
    files = [path.name for path in reading.opened if path.suffix in (".delta", ".changelog")]
    sides = [path.name for path in reading.opened if path.name.endswith((".delta.crc", ".changelog.crc"))]
    assert len(files) == len(sides)
    return len(files)


# Files that are not as usual


def copied(made: SmallFiles, target: Path) -> SmallFiles:
    shutil.copytree(made.folder, target)
    return replace(made, folder=target)


def damaged_file(made: SmallFiles) -> Path:
    """The file of batch 3 with the most bytes."""
    kind = "changelog" if any(made.folder.rglob("*.changelog")) else "delta"
    return max(made.folder.glob(f"state/0/*/4.{kind}"), key=lambda path: path.stat().st_size)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a byte": lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:],
    "the magic": lambda content: b"X" + content[1:],
    "cut off": lambda content: content[:-25],
    "empty": lambda content: b"",
    "no end mark": lambda content: lz4_stream(b""),
    "a size": lambda content: lz4_stream(b"\x7f\xff\xff\xff" + END),
    "a record of one byte": lambda content: lz4_stream(b"\0"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("with_sums", [True, False], ids=["stale sums", "no sums"])
def test_a_damaged_file_is_named(made: SmallFiles, kind: str, with_sums: bool, tmp_path: Path) -> None:
    mine = copied(made, tmp_path / "copy")
    path = damaged_file(mine)
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    if not with_sums:
        path.with_name(f".{path.name}.crc").unlink()
    asked: list[Callable[[], Any]] = [lambda: table(mine).scan().read_all(), lambda: table(mine).changes().read_all()]
    for ask in asked:
        with pytest.raises(CorruptError, match=str(path)) as raised:
            ask()
        assert raised.value.code == "SPARK_STATE_FILE"


def test_a_file_that_is_gone_is_missed(made: SmallFiles, tmp_path: Path) -> None:
    mine = copied(made, tmp_path / "copy")
    damaged_file(mine).unlink()
    with pytest.raises(NotFoundError, match="no file of version 4; batches 0 to 2 can be read now"):
        table(mine).scan().read_all()


def test_files_that_are_not_as_usual_are_read_all_the_same(made: SmallFiles, tmp_path: Path) -> None:
    """Without checksums, of several blocks, uncompressed, with something behind the end, and in another codec."""
    mine = copied(made, tmp_path / "copy")
    path = damaged_file(mine)
    plain = b"".join(decompressed(BytesIO(path.read_bytes()), str(path)))
    block, last = lz4_stream(plain)[:-21], lz4_stream(b"")[-21:]
    half = lz4_stream(plain[:9])[:-21] + lz4_stream(plain[9:])[:-21]
    other = _zstd(plain)
    for content in (half + last, block, block + last + b"behind", other, lz4_stream(plain + b"behind")):
        path.write_bytes(content)
        path.with_name(f".{path.name}.crc").write_bytes(side_file(content))
        assert rows(table(mine).scan()) == mine.state()
        assert read_changes(table(mine).changes()) == changes_of(mine)
    path.with_name(f".{path.name}.crc").write_bytes(b"not of this form")
    assert rows(table(mine).scan()) == mine.state()


def _zstd(plain: bytes) -> bytes:
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as stream:
        stream.write(plain)
    found: bytes = target.getvalue().to_pybytes()
    return found


def test_runs_have_the_changes_of_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files and streamed ones alternate, and records of changelogs with and without types."""
    monkeypatch.setattr(runs, "SMALL_BYTES", 400)
    monkeypatch.setattr(runs, "BLOCK", 600)
    wanted: list[list[str]] = []
    for version in range(1, 40):
        words = [f"w-{version}-{number}" for number in range((version * 7) % 23 * (version % 3 > 0))]
        typed = version % 5 == 0
        parts = [(b"\x01" if typed else b"") + record(word, (1, 2.0), versioned=True) for word in words]
        head, end = (b"\0\x02v2", b"\0") if typed else (b"", END)
        content = lz4_stream(head + b"".join(parts) + end)
        (tmp_path / f"{version}.changelog").write_bytes(content)
        (tmp_path / f".{version}.changelog.crc").write_bytes(side_file(content))
        wanted.append(words)
    folder = spark_folder(pafs.LocalFileSystem(), str(tmp_path))
    files = data_files(folder)
    found: dict[int, list[str]] = {file.version: [] for file in files}
    several = 0
    for run in change_runs(folder, files):
        several += len(run.files) > 1
        assert sum(run.counts) == len(run.changes)
        for single in run.by_file():
            texts = [single.changes.keys.cell(row)[17:].rstrip(b"\0").decode() for row in range(len(single.changes))]
            found[single.files[0].version] += texts
    assert list(found.values()) == wanted
    assert several


def _contents(changes: Iterator[Any]) -> list[Any]:
    return [
        (int(change.kind[row]), change.keys.cell(row), change.values.cell(row))
        for change in changes
        for row in range(len(change))
    ]


@pytest.mark.parametrize("kind", FORMS)
def test_any_file_is_read_as_alone(kind: str, tmp_path: Path) -> None:
    """Each byte of a file is changed in turn, and the file is cut off anywhere: a run says what a stream says."""
    one = lz4_stream(record("one", (1, 2.0)) + record("two", None) + END)
    folder = Folder(pafs.LocalFileSystem(), str(tmp_path), spark_folder(pafs.LocalFileSystem(), "/").rules)
    read = delta_changes if kind == "delta" else changelog_changes
    path = tmp_path / f"1.{kind}"
    changed = [one[:at] + bytes([one[at] ^ 0x10]) + one[at + 1 :] for at in range(len(one))]
    for content in [*changed, *(one[:at] for at in range(len(one)))]:
        path.write_bytes(content)
        (file,) = data_files(folder)
        assert _answer(partial(read, folder, file)) == _answer(partial(_of_runs, folder, file))


def _of_runs(folder: Folder, file: Any) -> Iterator[Any]:
    return (run.changes for run in change_runs(folder, [file]))


def _answer(read: Callable[[], Iterator[Any]]) -> list[Any]:
    try:
        return _contents(read())
    except CorruptError as error:
        return [error.message]


def test_files_of_an_object_store_are_fetched_side_by_side(made: SmallFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fetch waits for fifteen others, so fewer at a time would end in an error."""
    together = Barrier(PARALLEL_REQUESTS, timeout=60)
    fetch = Folder.read_once

    def fetched(folder: Folder, name: str, *, gone: str = "") -> bytes:
        together.wait()
        return fetch(folder, name, gone=gone)

    folder = spark_folder(pafs.SubTreeFileSystem("/", pafs.LocalFileSystem()), str(made.folder / "state/0/0"))
    files = [*data_files(folder)] * PARALLEL_REQUESTS
    files = files[: 3 * PARALLEL_REQUESTS]
    monkeypatch.setattr(Folder, "read_once", fetched)
    found = [file.version for run in change_runs(folder, files) for file in run.files]
    assert found == [file.version for file in files]


def test_a_report_of_nowhere_is_refused_before_scripts_are_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "vega_scripts", lambda: pytest.fail("bundled"))
    with pytest.raises(NotFoundError):
        statestore.write_report(tmp_path / "absent", tmp_path / "page.html")
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == "[]"
