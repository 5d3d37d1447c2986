"""Verification of the state of an engine: each state is read in full, as of its newest version or of all versions.

The engine's files have the checksums that the engine gave them, and their readers check these, as well as lengths and
forms. Nothing is written. A part that cannot be read does not stop the others, so each damaged file is reported, with
the versions that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from statestore.catalog.checks.verify_report import Problem, Progress, Report, Verification, problem_of
from statestore.catalog.engines.delta_history import DeltaSplit
from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.engines.engine_table import EngineTable, PartSplit
from statestore.formats.engine import FileFinding, Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.notices import damage_to, notices_to
from statestore.formats.places.locations import Location
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import Query

MOST_PROBLEMS = 1000
"""Problems of one state that are told; those beyond are counted."""


def verify_state(
    states: EngineStates, name: str, progress: Callable[[Progress], None], *, deep: bool = False
) -> Verification:
    """Read one state in full, with ``deep`` each of its versions. Damage is returned, not raised; notices are notes.

    The read begins again where the engine replaces the version meanwhile.
    """
    return again(lambda: _verified(states.pin_anew(), name, progress, deep))


def _verified(states: EngineStates, name: str, progress: Callable[[Progress], None], deep: bool) -> Verification:
    table = states.open(name)
    assert isinstance(table, EngineTable), f"{name} is metadata of a state"
    source, state = table.source, table.state
    report, rows = Report(name, progress, 0), 0
    versions: Sequence[int] = ()
    try:
        versions = _versions(source, state, deep)
        report.total = sum(_bytes(source, state, version) for version in versions)
    except StateStoreError as error:
        _add(report, table, error, None)
    with notices_to(report.note):
        for version in versions:
            with damage_to(partial(_add_repaired, report, table, version)):
                rows += _read(table, version, report)
        if deep and len(versions) > 1:
            _read_changes(table, report)
    try:
        _add_lost(table, report)
        _add_findings(table, versions, report)
        _add_damage(table, report)
    except StateStoreError as error:
        _add(report, table, error, None)
    report.finish()
    known = (versions[0], versions[-1]) if versions and source.keeps_versions else None
    return _verification(report, rows, known, deep)


def verify_nothing(location: Location, error: CorruptError, *, deep: bool) -> Verification:
    """Return the verification of state that damage keeps from being opened, so that no part of it was looked at."""
    report = Report(location.name, lambda event: None, 0)
    report.add(problem_of(error, str(location), "every read"))
    return _verification(report, 0, None, deep)


def _verification(report: Report, rows: int, versions: tuple[int, int] | None, deep: bool) -> Verification:
    return Verification(
        store=report.store,
        problems=tuple(report.problems),
        notes=tuple(report.notes),
        files=len(report.checked),
        bytes=report.compared,
        segments=0,
        rows=rows,
        log_entries=0,
        checkpoints=0,
        versions=versions,
        uncommitted=0,
        unreferenced=(),
        cache_bytes=0,
        of_engine=True,
        all_versions=deep,
        coverage=tuple(report.coverage.values()),
    )


def _versions(source: Source, state: str, deep: bool) -> Sequence[int]:
    """The versions to read, ascending: the newest one, whether all of its files are there or not, or all."""
    newest = source.newest(state)
    if not deep:
        return [newest]
    readable = [version.number for version in source.versions(state) if version.readable and version.holds_state]
    return sorted({*readable, newest})


def _add_lost(table: EngineTable, report: Report) -> None:
    """Add the versions whose files are not all there, though an older version's are.

    Those before all others may have been purged, as engines do: a note.
    """
    source, state = table.source, table.state
    known = [version for version in source.versions(state) if version.holds_state]
    readable = [version.number for version in known if version.readable]
    lost = [version.number for version in known if not version.readable and version.number != known[-1].number]
    if not readable or not lost:
        return
    purged = [number for number in lost if number < readable[0]]
    if purged:
        words = source.version_words[1]
        report.note(
            f"{words} {purged[0]} to {purged[-1]} are known, and not all of their files are there: purged, or lost"
        )
    for number in lost[len(purged) :]:
        before = len(report.problems)
        try:
            _read_parts(table, number, report)
            if len(report.problems) == before:
                source.check_readable(state, number)
        except StateStoreError as error:
            _add(report, table, error, number)


def _read_parts(table: EngineTable, version: int, report: Report) -> None:
    """Read a version that is not readable, so that each part says which of its files is lost."""
    at = table.source.at(table.state, version)
    for part in at.parts(()):
        try:
            for _ in at.rows(part, at.schema.names, ()):
                pass
        except StateStoreError as error:
            _add(report, table, error, version)


def _bytes(source: Source, state: str, version: int) -> int:
    try:
        return sum(file.bytes for file in source.at(state, version).files())
    except StateStoreError:  # the read reports it
        return 0


def _read(table: EngineTable, version: int, report: Report) -> int:
    """Read all rows of a version, and return their number; what cannot be read is a problem."""
    query, rows = Query(version=version), 0
    try:
        splits = table.splits(query)
        files = list(table.source.at(table.state, version).files())
    except StateStoreError as error:
        _add(report, table, error, version)
        return 0
    size = sum(file.bytes for file in files)
    whole = True
    for number, split in enumerate(splits):
        placement = split.at.placement(split.part) if isinstance(split, PartSplit) else None
        try:
            for batch in table.read(split, query):
                rows += batch.num_rows
                if placement is not None:
                    placement.add(batch)
            for found in () if placement is None else placement.findings():
                _add_finding(report, table, replace(found, version=version))
        except StateStoreError as error:
            _add(report, table, error, version)
            whole = False
        report.advance(f"part {number + 1} of {len(splits)}", size // len(splits))
    at = table.source.at(table.state, version)
    for file in files if whole else ():
        if file.name in report.checked:
            continue
        report.checked.add(file.name)
        report.compared += file.bytes
        has_checksum = at.has_checksum(file)
        if has_checksum is not None:
            report.cover(file.role, file.bytes, has_checksum)
    return rows


def _read_changes(table: EngineTable, report: Report) -> None:
    """Read the changes of all versions, where the engine keeps them in files of their own."""
    query = Query(mode="changes")
    try:
        splits = [split for split in table.splits(query) if isinstance(split, DeltaSplit)]
        for split in splits:
            for _ in table.read(split, query):
                pass
    except (CorruptError, NotFoundError) as error:
        _add(report, table, error, None)
    except StateStoreError:  # a state that has no changes to read
        return


def _add(report: Report, table: EngineTable, error: StateStoreError, version: int | None) -> None:
    """Add the problem that an error reports, or its version to the same problem of another one."""
    if isinstance(error, NotFoundError) and is_gone(error):
        raise error
    for at, known in enumerate(report.problems):
        if (known.code, known.message) == (error.code, error.message):
            report.problems[at] = _affecting(known, table, version)
            return
    if len(report.problems) < MOST_PROBLEMS:
        found = problem_of(error, table.source.path, f"reads of {table.name}")
        report.add(_affecting(found, table, version))


def _affecting(problem: Problem, table: EngineTable, version: int | None) -> Problem:
    if version is None or not table.source.keeps_versions:
        return problem
    first, last = problem.versions or (version, version)
    first, last = min(first, version), max(last, version)
    word, words = table.source.version_words
    which = f"{word} {first}" if first == last else f"{words} {first} to {last}"
    return replace(problem, versions=(first, last), affects=f"reads of {table.name}: {which}")


def _add_repaired(report: Report, table: EngineTable, version: int, error: CorruptError | NotFoundError) -> None:
    """Add the damage of a file that reads do without."""
    word, _ = table.source.version_words
    found = error.message.removesuffix("; restore the file from a copy")
    text = (
        f"{found}; reads succeed without this file, by the changes that are there ({word} {version} was read so): "
        "restore the file from a copy, or wait until a later snapshot replaces it"
    )
    _add(report, table, type(error)(error.code, text), version)


def _add_findings(table: EngineTable, versions: Sequence[int], report: Report) -> None:
    """Add what files show that no read meets."""
    for found in table.source.file_findings(table.state, versions):
        if not found.damaged:
            report.note(found.text)
            continue
        report.notes[:] = [note for note in report.notes if found.file not in note]
        _add_finding(report, table, found)


def _add_finding(report: Report, table: EngineTable, found: FileFinding) -> None:
    """Add the problem of a file that its reads pass over, or its version to the same problem of another one."""
    problem = Problem(ErrorCode.FILE_DAMAGED, found.file, found.text, f"reads of {table.name}")
    for at, known in enumerate(report.problems):
        if (known.code, known.message) == (problem.code, problem.message):
            report.problems[at] = _affecting(known, table, found.version)
            return
    if len(report.problems) < MOST_PROBLEMS:
        report.add(_affecting(problem, table, found.version))


def _add_damage(table: EngineTable, report: Report) -> None:
    """Add damage that a summary shows and that the read did not meet, such as that of files of other states.

    What it says of whole files, such as where a log begins or breaks off, is a note.
    """
    size = table.source.size(table.state)
    for text in size.problems:
        if any(known.message in text or text in known.message for known in report.problems):
            continue
        if size.damaged:
            affects = f"{table.name}, or other states in the same files"
            report.add(Problem(ErrorCode.FILE_DAMAGED, table.source.path, text, affects))
        elif not any(text in note for note in report.notes):
            report.note(text)
