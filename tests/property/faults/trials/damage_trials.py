"""A store with every class of file, and every kind of read after one file was damaged."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from support.stores.short_chunks import short_chunks

import statestore
from faults.damage import drawn, file_class, inflict
from faults.subjects import SUBJECTS, Rows, Subject, WrongAnswer
from statestore import CorruptError, NotFoundError, UnsupportedError

COMMITTED, FLUSHED, PUT = 330, 340, 344
COMMITS = 66  # enough for a checkpoint of the log
KEYED_VERSIONS = 3


def make_template(root: str, kind: str) -> None:
    """Make commits, a compaction, log checkpoints, version chunks, entry packs, a flush, and puts that are never
    flushed; then the process dies.
    """
    if kind == "keyed":
        _make_keyed(Path(root))
        return
    with short_chunks():
        _make_store(root, kind)


def _make_store(root: str, kind: str) -> None:
    subject = SUBJECTS[kind]
    store = subject.create(Path(root))
    for commit in range(COMMITS):
        store.put_all(subject.bulk(range(commit * 5 + 1, commit * 5 + 6)))
        store.commit()
    store.vacuum(older_than="7 days")
    assert list((Path(root) / "s/log/_packs").iterdir()) and list((Path(root) / "s/log/_chunks").iterdir())
    for number in range(COMMITTED + 1, FLUSHED + 1):
        subject.write(store, number)
    store.flush()
    for number in range(FLUSHED + 1, PUT + 1):
        subject.write(store, number)
    os._exit(0)


def _make_keyed(root: Path) -> None:
    store = statestore.connect(root).create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    with store.backend(directory=root.parent / "local") as backend:
        single, many = backend.value_state("v", "bigint"), backend.map_state("m", "string", "bigint")
        for version in range(1, KEYED_VERSIONS + 1):
            for number in range(40):
                backend.set_current_key(f"k{number}")
                single.update(version * 100 + number)
                many.put(f"m{version}", number)
            taken = backend.snapshot("full" if version == 2 else "incremental").result()
            backend.notify_complete(store.commit([taken]))


class _Reads:
    """Runs reads one by one and records wrong outcomes."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.right = self.refused = 0

    def ask(self, name: str, read: Callable[[], Any]) -> None:
        """Run a read, which returns the truth (it raises WrongAnswer otherwise) or raises an error of the tree."""
        try:
            read()
            self.right += 1
        except WrongAnswer as error:
            self.wrong.append(f"{name}: WRONG ANSWER: {error}")
        except (CorruptError, NotFoundError, UnsupportedError):
            self.refused += 1
        except duckdb.Error as error:
            if re.search(r"\[[A-Z_]+\]", str(error)):
                self.refused += 1
            else:
                self.wrong.append(f"{name}: raw {type(error).__name__}: {str(error)[:200]}")
        except BaseException as error:
            self.wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")


def damaged(template: str, root: str, kind: str, draw: int) -> dict[str, Any]:
    """Damage a copy of the template and read it in every way."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    damage = drawn(Path(root) / "s", draw)
    if not inflict(Path(root) / "s", damage):
        return {"same": True, "wrong": [], "damage": str(damage), "right": 0, "refused": 0}
    reads = _Reads()
    if kind == "keyed":
        _read_keyed(reads, Path(root))
    else:
        with short_chunks():
            _read_store(reads, SUBJECTS[kind], Path(root), damage.file)
    return {
        "same": False,
        "wrong": reads.wrong,
        "right": reads.right,
        "refused": reads.refused,
        "damage": f"{damage.way} in {file_class(damage.file)}",
    }


def _same(found: Any, expected: Any) -> None:
    if found != expected:
        missing = [row for row in expected if row not in found] if isinstance(expected, list) else expected
        more = [row for row in found if row not in expected] if isinstance(found, list) else found
        raise WrongAnswer(f"without {missing!r:.150}, and with {more!r:.150}")


def _prefix(subject: Subject, found: Rows, least: int) -> None:
    """Puts that were never flushed may end with the file that holds them, but only the last ones."""
    newest = max((row[1] for row in found), default=0)
    for end in (newest, newest + 1):
        if least <= end <= PUT and found == subject.expected(range(1, end + 1)):
            return
    expected = subject.expected(range(1, PUT + 1))
    _same(found, expected)


def _read_store(reads: _Reads, subject: Subject, root: Path, file: str) -> None:
    with contextlib.ExitStack() as stack:
        opened: list[Any] = []

        def open_to_read() -> None:
            opened.append(stack.enter_context(statestore.connect(root).open_store("s", read_only=True)))

        reads.ask("opening to read", open_to_read)
        if opened:
            _read_committed(reads, subject, opened[0])
    rows = len(subject.expected(range(1, COMMITTED + 1))) if subject.kind != "versioned" else None
    query = "SELECT count(*) AS n FROM s"
    reads.ask("sql", lambda: _count(rows, statestore.sql(str(root), query).to_pylist()[0]["n"]))
    reads.ask("attach", lambda: _count(rows, _attached_count(root)))
    reads.ask("verify", lambda: _verified(root, file))
    with contextlib.ExitStack() as stack:
        writers: list[Any] = []

        def open_to_write() -> None:
            writers.append(stack.enter_context(statestore.connect(root).open_store("s")))
            _check_acknowledged(subject, subject.live(writers[0]), file)

        reads.ask("opening to write and reading", open_to_write)
        if writers and not reads.wrong:
            reads.ask("commit", lambda: _commit(subject, writers[0]))


def _read_committed(reads: _Reads, subject: Subject, store: Any) -> None:
    everything = range(1, COMMITTED + 1)
    for version in (1, COMMITS // 2, COMMITS - 3):
        truth = subject.expected_table(range(1, version * 5 + 1))
        reads.ask("version", functools.partial(_version, subject, store, version, truth))
    reads.ask("table", lambda: _same(subject.table(store), subject.expected_table(everything)))
    reads.ask("changes", lambda: _changes(store))
    reads.ask("live reads of a reader", lambda: _same(subject.live(store), subject.expected(everything)))


def _attached_count(root: Path) -> Any:
    with contextlib.closing(statestore.attach(str(root))) as connection:
        return connection.sql("SELECT count(*) FROM s").fetchall()[0][0]


def _check_acknowledged(subject: Subject, live: Rows, file: str) -> None:
    """Check that all puts are there; of puts that were never flushed, the last may be lost with their file."""
    if file.startswith("changelog/"):
        _prefix(subject, live, COMMITTED if subject.name == "versioned" else FLUSHED)
    else:
        _same(live, subject.expected(range(1, PUT + 1)))


def _commit(subject: Subject, store: Any) -> None:
    """Check that a commit gives the table the rows of the live store."""
    live = subject.live(store)
    store.commit()
    _same(subject.live(store), live)
    end = max((row[1] for row in live), default=0)
    table = subject.table(store)
    if table != subject.expected_table(range(1, end + 2)):  # the last may be a delete
        _same(table, subject.expected_table(range(1, end + 1)))


def _version(subject: Subject, store: Any, version: int, truth: Rows) -> None:
    """Find the version that holds ``version`` * 5 writes: versions of the log are commits and compactions."""
    log = store.versions().to_pylist()
    writes = [entry["version"] for entry in log if entry["operation"] == "write"]
    if subject.kind != "key_value":
        _same(subject.table(store, writes[version - 1]), truth)
    else:
        _same(subject.table(store, writes[version - 1]), subject.expected(range(1, version * 5 + 1)))


def _changes(store: Any) -> None:
    feed = store.changes(start_version=0, columns=["v", "_change_type"]).read_all().to_pylist()
    arrived = sorted({change["v"] for change in feed if change["_change_type"] in ("insert", "update_postimage")})
    _same(arrived, [n for n in arrived if n <= COMMITTED])
    if len(arrived) < COMMITTED // 2:
        raise WrongAnswer(f"{len(arrived)} values in the change feed")


def _count(expected: int | None, found: int) -> None:
    if expected is not None and found != expected:
        raise WrongAnswer(f"counts {found} rows of {expected}")


def _verified(root: Path, file: str) -> None:
    """Check that damage is reported unless the file is a cache, a lock or an unfinished end of a changelog."""
    report = statestore.verify(str(root))[0]
    if file.startswith(("live/", "changelog/")) or file == "writer.lock":
        return
    if report.ok:
        raise WrongAnswer(f"verify is content with the damaged {file_class(file)}")


def _read_keyed(reads: _Reads, root: Path) -> None:
    def check_table(version: int, truth: Rows) -> None:
        found = statestore.sql(str(root), f"SELECT * FROM s.v VERSION AS OF {version}").to_pylist()
        _same(sorted(((row["k"], row["value"]) for row in found), key=repr), truth)

    def restored(version: int) -> None:
        with (
            statestore.connect(root).open_store("s") as store,
            store.backend(version=version, directory=root.parent / f"{root.name}-local") as backend,
        ):
            state = backend.value_state("v", "bigint")
            found = []
            for number in range(40):
                backend.set_current_key(f"k{number}")
                found.append(state.value())
            _same(found, [version * 100 + number for number in range(40)])
            if backend.num_entries() != 40 + 40 * version:
                raise WrongAnswer(f"{backend.num_entries()} entries")

    for version in range(1, KEYED_VERSIONS + 1):
        truth = sorted(((f"k{number}", version * 100 + number) for number in range(40)), key=repr)
        reads.ask("table of a snapshot", functools.partial(check_table, version, truth))
        reads.ask("restore", functools.partial(restored, version))

    def newest() -> None:
        with statestore.connect(root).open_store("s", read_only=True) as store:
            _same(sorted(store.retained()), list(range(1, KEYED_VERSIONS + 1)))

    def verified() -> None:
        if statestore.verify(str(root))[0].ok:
            raise WrongAnswer("verify is content")

    reads.ask("versions", newest)
    reads.ask("verify", verified)
