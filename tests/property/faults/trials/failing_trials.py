"""One trial of the failing-call sweep: an operation of which one system call fails, and the checks afterwards.

Trials run in children (`faults.children`). ``struck`` does the operation and continues with the same handle; ``beyond``
reads the store from another process. Both return a list of problems as text, which is empty if there are none.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

import statestore
from faults.library import Faults
from faults.subjects import SUBJECTS, Rows, Subject, WrongAnswer, key_of, rebuild_options
from statestore import CommitUnknownError, ConflictError, CorruptError, NotFoundError, StateStoreError
from statestore.formats.error_codes import ErrorCode

BASE = tuple(range(1, 9))  # committed before: by threes, then what is left
PENDING = (9, 10, 11)  # put before the operation
ONE, MANY, LATER, ANOTHER = 12, (13, 14, 15), 16, 30
REOPEN = re.compile(r"\bre-?open|open (it|the store|this store) again|open_store", re.IGNORECASE)


@dataclass
class Scene:
    """A store and its acknowledged writes; ``doubtful``: numbers of an operation that raised."""

    root: Path
    subject: Subject
    acknowledged: list[int]
    doubtful: tuple[int, ...] = ()
    store: Any = None
    theirs: int = 0  # the version of another handle's commit


Operation = Callable[[Scene], None]


def rows_agree(scene: Scene, found: Rows, doing: str) -> None:
    """Raise WrongAnswer unless these are the committed rows."""
    expected = scene.subject.expected_table(BASE)
    if found != expected:
        raise WrongAnswer(f"{doing} answers {found!r:.300}, expected {expected!r:.300}")


def _put(scene: Scene) -> None:
    scene.doubtful = (ONE,)
    scene.subject.write(scene.store, ONE)
    scene.acknowledged.append(ONE)


def _delete(scene: Scene) -> None:
    scene.doubtful = (15,)
    scene.subject.write(scene.store, 15)
    scene.acknowledged.append(15)


def _put_all(scene: Scene) -> None:
    scene.doubtful = MANY
    scene.store.put_all(scene.subject.bulk(MANY))
    scene.acknowledged.extend(MANY)


def _write(scene: Scene) -> None:
    scene.doubtful = MANY
    scene.store.write(scene.subject.bulk(MANY), transaction=("writes", 1))
    if MANY[0] not in scene.acknowledged:
        scene.acknowledged.extend(MANY)


def _commit(scene: Scene) -> None:
    scene.store.commit()


def _transaction(scene: Scene) -> None:
    scene.store.commit(transaction=("application", 1))


def _flush(scene: Scene) -> None:
    scene.store.flush()


def _compact(scene: Scene) -> None:
    scene.store.compact(full=True)


def _expire(scene: Scene) -> None:
    scene.store.expire(before=0)


def _vacuum(scene: Scene) -> None:
    scene.store.vacuum(older_than=0)


def _close(scene: Scene) -> None:
    scene.store.close()


def _refresh(scene: Scene) -> None:
    scene.store.refresh()


def _see(scene: Scene) -> None:
    """Check that a refresh, a scan or a point read sees the commit of another handle."""
    newest = scene.store.refresh()
    if newest != scene.theirs:
        raise WrongAnswer(f"refresh answers {newest}, the newest version is {scene.theirs}")


def _see_by_get(scene: Scene) -> None:
    found = scene.store.get(key_of(ANOTHER))
    if found is None or found.value != ANOTHER:
        raise WrongAnswer(f"get answers {found}, another handle has committed {ANOTHER}")


def _table(scene: Scene) -> None:
    rows_agree(scene, scene.subject.table(scene.store), "scan or history")


def _changes(scene: Scene) -> None:
    scene.store.changes(start_version=0).read_all()
    scene.store.diff(start_version=1).read_all()
    scene.store.versions()


def _live(scene: Scene) -> None:
    expected = scene.subject.expected(scene.acknowledged)
    found = scene.subject.live(scene.store)
    if found != expected:
        raise WrongAnswer(f"live reads answer {found!r:.300}, expected {expected!r:.300}")


def _open(scene: Scene) -> None:
    scene.store = statestore.connect(scene.root).open_store("s", auto_compact=False)
    _put(scene)


def _open_to_read(scene: Scene) -> None:
    with statestore.connect(scene.root).open_store("s", read_only=True) as reader:
        found = scene.subject.live(reader)
        expected = scene.subject.expected(BASE)
        if found != expected:
            raise WrongAnswer(f"a read-only handle answers {found!r:.300}, expected {expected!r:.300}")


def _sql(scene: Scene) -> None:
    found = statestore.sql(str(scene.root), "SELECT count(*) AS n FROM s").to_pylist()[0]["n"]
    _count_agrees(scene, found, "sql")


def _attach(scene: Scene) -> None:
    connection = statestore.attach(str(scene.root))
    with contextlib.closing(connection):
        _count_agrees(scene, connection.sql("SELECT count(*) FROM s").fetchall()[0][0], "attach")


def _count_agrees(scene: Scene, found: int, door: str) -> None:
    with statestore.connect(scene.root).open_store("s", read_only=True) as reader:
        expected = reader.scan().read_all().num_rows
    if found != expected:
        raise WrongAnswer(f"{door} counts {found} rows of {expected}")


def _verify(scene: Scene) -> None:
    report = statestore.verify(str(scene.root))[0]
    if not report.ok:  # a call that failed may be reported as a problem, but not as damage of the file
        codes = {problem.code for problem in report.problems}
        if codes - {"DISK_FAILED"}:
            raise WrongAnswer(f"verify reports {codes} of an undamaged store: {report.problems[0].message[:120]}")
        raise statestore.StorageError(ErrorCode.DISK_FAILED, "reported by verify")


def _create(scene: Scene) -> None:
    scene.subject.create(scene.root, "new").close()


def _drop(scene: Scene) -> None:
    statestore.connect(scene.root).drop_store("other")


def _rebuild(scene: Scene) -> None:
    options = rebuild_options(scene.subject)
    statestore.connect(scene.root).rebuild("other", key_groups=64, **options).close()


# name: (what is done, whether a handle is open, whether writes wait in it)
OPERATIONS: dict[str, tuple[Operation, bool, bool]] = {
    "put": (_put, True, True),
    "first put": (_put, True, False),
    "delete": (_delete, True, True),
    "put_all": (_put_all, True, True),
    "commit": (_commit, True, True),
    "commit(transaction)": (_transaction, True, True),
    "write": (_write, True, True),
    "flush": (_flush, True, True),
    "close": (_close, True, True),
    "compact": (_compact, True, False),
    "expire": (_expire, True, False),
    "vacuum": (_vacuum, True, False),
    "refresh": (_refresh, True, False),
    "see a commit": (_see, True, False),
    "see a commit by get": (_see_by_get, True, False),
    "scan and history": (_table, True, True),
    "changes and diff": (_changes, True, True),
    "live reads": (_live, True, True),
    "open": (_open, False, False),
    "open to read": (_open_to_read, False, False),
    "sql": (_sql, False, False),
    "attach": (_attach, False, False),
    "verify": (_verify, False, False),
    "create_store": (_create, False, False),
    "drop_store": (_drop, False, False),
    "rebuild": (_rebuild, False, False),
}
REPEATED = {name for name in OPERATIONS if name not in ("put", "first put", "delete", "put_all", "open", "close")}


SEEING = ("see a commit", "see a commit by get")  # of another handle, which only versioned stores allow
COMMITS = ("commit", "commit(transaction)", "write", "compact", "expire")


def operations(kind: str) -> list[str]:
    """The operations on a kind of store."""
    return [name for name in OPERATIONS if kind == "versioned" or name not in SEEING]


def make_template(root: str, kind: str) -> None:
    """Two stores: ``s`` with BASE committed, ``other`` to be dropped or rebuilt."""
    subject = SUBJECTS[kind]
    for name in ("s", "other"):
        with subject.create(Path(root), name) as store:
            for number in BASE:
                subject.write(store, number)
                if number % 3 == 0:
                    store.commit()
            store.commit()


def struck(
    template: str, root: str, kind: str, operation: str, kinds: Sequence[str], way: str, at: int, errno: int
) -> dict[str, Any]:
    """Do the operation on a copy of the template with the fault, and continue without it."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    faults = Faults()
    faults.below(Path(root))
    scene = Scene(Path(root), SUBJECTS[kind], list(BASE))
    act, opened, waiting = OPERATIONS[operation]
    wrong: list[str] = []
    if opened:
        scene.store = statestore.connect(root).open_store("s", auto_compact=False)
        if waiting:
            for number in PENDING:
                scene.subject.write(scene.store, number)
                scene.acknowledged.append(number)
    if operation in SEEING:
        scene.store.refresh()
        with statestore.connect(root).open_store("s", auto_compact=False) as another:
            scene.subject.write(another, ANOTHER)
            scene.acknowledged.append(ANOTHER)
            scene.theirs = another.commit()
    error: BaseException | None = None
    before = scene.store.version if opened else 0
    faults.arm(kinds, way, at, errno)
    try:
        act(scene)
    except BaseException as caught:
        faults.disarm()
        error = caught
        wrong += judge_error(caught)
    faults.disarm()
    fired, counts = faults.fired, faults.counts
    if fired or way == "never":
        wrong += _go_on(scene, operation, act, error, before)
    return {
        "fired": fired,
        "counts": counts,
        "wrong": wrong,
        "error": None if error is None else f"{type(error).__name__}: {str(error)[:200]}",
        "acknowledged": scene.acknowledged,
    }


def judge_error(error: BaseException) -> list[str]:
    """The problems of an error that an operation raised."""
    if isinstance(error, WrongAnswer):
        return [f"WRONG ANSWER: {error}"]
    if isinstance(error, duckdb.Error) and re.search(r"\[[A-Z_]+\]", str(error)):
        return []  # through a connection of DuckDB our errors come as its own, with our code and message in them
    if not isinstance(error, StateStoreError):
        return [f"raw {type(error).__name__} in {_origin(error)}: {str(error)[:160]}"]
    if isinstance(error, CorruptError):
        return [f"a failing disk is called damage: {error.code} {error.message[:160]}"]
    if isinstance(error, NotFoundError):
        return [f"a failing disk is called absence: {error.code} {error.message[:160]}"]
    return []


def _origin(error: BaseException) -> str:
    """The innermost function of this project in the error's stack."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/statestore/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/statestore/')[2]} {frames[-1].name}" if frames else "another library"


def _go_on(scene: Scene, operation: str, act: Operation, error: BaseException | None, before: int) -> list[str]:
    """Check that without the fault the same handle works, or reports that it must be opened again, which works."""
    wrong: list[str] = []
    if error is not None and operation in COMMITS:
        wrong += _settle(scene, operation, error, before)
    if error is not None and operation in REPEATED:
        try:
            act(scene)
        except BaseException as caught:
            if not _is_done(operation, caught) and not _must_reopen(caught):
                wrong.append(f"repeated without the fault: {type(caught).__name__}: {str(caught)[:160]}")
        scene.doubtful = ()
    if scene.store is None or operation == "close":
        scene.store = None
    else:
        try:
            _use(scene, LATER)
        except BaseException as caught:
            if not _must_reopen(caught):
                wrong.append(f"the same handle afterwards: {type(caught).__name__}: {str(caught)[:200]}")
        try:
            scene.store.close()
        except BaseException as caught:
            wrong.append(f"close afterwards: {type(caught).__name__}: {str(caught)[:160]}")
    try:
        with statestore.connect(scene.root).open_store("s", auto_compact=False) as again:
            scene.store = again
            scene.subject.write(again, LATER + 4)
            scene.acknowledged.append(LATER + 4)
            _check_live(scene)
    except BaseException as caught:
        wrong.append(f"opened again in this process: {type(caught).__name__}: {str(caught)[:200]}")
    return wrong


def _settle(scene: Scene, operation: str, error: BaseException, before: int) -> list[str]:
    """The meaning of a commit that raised: unknown, where was_committed agrees with the log, or not committed."""
    if not isinstance(error, StateStoreError):
        return []
    try:
        with statestore.connect(scene.root).open_store("s", read_only=True) as reader:
            newest = reader.version
            there = MANY[0] in {row[1] for row in scene.subject.table(reader)}
    except BaseException as caught:
        return [f"a reader after a failed commit: {type(caught).__name__}: {str(caught)[:160]}"]
    if there and operation == "write":
        scene.acknowledged.extend(scene.doubtful)
        scene.doubtful = ()
    if not isinstance(error, CommitUnknownError):
        committed = there if operation == "write" else newest > before
        return [f"raised {error.code} though it was committed"] if committed else []
    try:
        said = scene.store.was_committed(error.commit)
    except BaseException as caught:
        return [f"was_committed: {type(caught).__name__}: {str(caught)[:160]}"]
    known = newest >= int(error.commit.partition("-")[0])
    return [] if said == known else [f"was_committed answers {said}, of {error.commit} the log has {newest}"]


def _is_done(operation: str, error: BaseException) -> bool:
    """Return whether the repetition reports that the first attempt succeeded."""
    done = {"create_store": "STORE_EXISTS", "drop_store": "STORE_NOT_FOUND"}.get(operation)
    return isinstance(error, StateStoreError) and error.code == done


def _must_reopen(error: BaseException) -> bool:
    return isinstance(error, StateStoreError) and bool(REOPEN.search(error.message))


def _use(scene: Scene, number: int) -> None:
    """Put, commit and read with the handle."""
    scene.subject.write(scene.store, number)
    scene.acknowledged.append(number)
    _check_live(scene)
    scene.store.commit()
    _check_live(scene)
    expected = scene.subject.expected_table(scene.acknowledged)
    found = scene.subject.table(scene.store)
    if found != expected:
        raise WrongAnswer(f"the table has {found!r:.400}, acknowledged were {expected!r:.400}")


def _check_live(scene: Scene) -> None:
    found = scene.subject.live(scene.store)
    if found == scene.subject.expected(scene.acknowledged):
        return
    with_failed = sorted({*scene.acknowledged, *scene.doubtful}, key=[*scene.acknowledged, *scene.doubtful].index)
    if scene.doubtful and found == scene.subject.expected(with_failed):
        raise WrongAnswer("a write that raised is there")
    raise WrongAnswer(f"live reads answer {found!r:.400}, acknowledged were {scene.acknowledged}")


def beyond(root: str, kind: str, operation: str, acknowledged: list[int]) -> list[str]:
    """The problems that another process finds."""
    wrong: list[str] = []
    subject = SUBJECTS[kind]

    def step(name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as caught:
            wrong.append(f"another process, {name}: {type(caught).__name__}: {str(caught)[:300]}")

    def look() -> None:
        with statestore.connect(root).open_store("s", read_only=True) as reader:
            subject.table(reader)
            subject.live(reader)

    def go_on() -> None:
        with statestore.connect(root).open_store("s", auto_compact=False) as store:
            store.commit()
            scene = Scene(Path(root), subject, acknowledged, store=store)
            _check_live(scene)
            _use(scene, LATER + 8)
            _check_commits(subject, store, acknowledged, first=1 if operation == "expire" else 0)
            store.vacuum(older_than=0)

    step("reading", look)
    step("writing", go_on)
    step("verify", lambda: _check_files(root))
    if operation in ("create_store", "drop_store", "rebuild"):
        step("the other store", lambda: _check_other(root, subject, operation))
    return wrong


def _check_commits(subject: Subject, store: Any, acknowledged: Sequence[int], first: int) -> None:
    """Check that no write is in two commits. Each has a value of its own, which the change feed must list once."""
    feed = store.changes(start_version=first, columns=["v", "_change_type", "_commit_version"]).read_all().to_pylist()
    arrived: dict[int, set[int]] = {}
    for change in feed:
        if change["_change_type"] in ("insert", "update_postimage"):
            arrived.setdefault(change["v"], set()).add(change["_commit_version"])
    twice = {value: sorted(versions) for value, versions in arrived.items() if len(versions) > 1}
    if twice:
        raise WrongAnswer(f"committed twice: {twice}")
    if subject.kind != "key_value":  # which keeps of a commit what came last
        log = store.versions().to_pylist()
        rows = sum(entry["rows"] + entry["tombstones"] for entry in log if entry["operation"] in ("write", "overwrite"))
        if rows != len(acknowledged):
            raise WrongAnswer(f"{rows} rows in commits of {len(acknowledged)} writes: committed twice")


def _check_files(root: str) -> None:
    for report in statestore.verify(root):
        if not report.ok:
            raise WrongAnswer(f"{report.store}: {report.problems[0].code} {report.problems[0].message[:160]}")
        if report.unreferenced and report.store == "s":
            raise WrongAnswer(f"left after vacuum: {[name for name, _ in report.unreferenced][:3]}")


def _check_other(root: str, subject: Subject, operation: str) -> None:
    """Check that the store that was created, dropped or rebuilt is whole, or not there."""
    catalog = statestore.connect(root)
    if operation == "drop_store":
        with contextlib.suppress(NotFoundError):
            catalog.drop_store("other")
        return
    name = "new" if operation == "create_store" else "other"
    with contextlib.suppress(ConflictError), catalog.open_store(name) as store:
        done = [] if operation == "create_store" else list(BASE)
        if operation == "create_store":
            if subject.live(store) != []:
                raise WrongAnswer("a new store has rows")
        elif subject.kind != "versioned" and subject.live(store) != subject.expected(done):
            raise WrongAnswer(f"{name} has {subject.live(store)!r:.300}")
        subject.write(store, 40)
        store.commit()
