"""Verification of the state of an engine: each state is read in full, as of its newest version.

The engine's files have the checksums that the engine gave them, and their readers check these, as well as lengths and
forms. Nothing is written. Older versions are not read: a read of one is its check.
"""

from __future__ import annotations

from collections.abc import Callable

from statestore.catalog.checks.verify_report import Problem, Progress, Report, Verification, problem_of
from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.notices import notices_to
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import Query


def verify_state(states: EngineStates, name: str, progress: Callable[[Progress], None]) -> Verification:
    """Read one state in full. Damage is returned, not raised; notices about the rows are notes.

    The read begins again where the engine replaces the version meanwhile.
    """
    return again(lambda: _verified(states.pin_anew(), name, progress))


def _verified(states: EngineStates, name: str, progress: Callable[[Progress], None]) -> Verification:
    table = states.open(name)
    assert isinstance(table, EngineTable), f"{name} is metadata of a state"
    source, state = table.source, table.state
    report, rows, version = Report(name, progress, 0), 0, None
    try:
        version = source.newest(state)
        files = list(source.at(state, version).files())
        report.total = sum(file.bytes for file in files)
        with notices_to(report.note):
            rows = _read(table, version, report)
        report.checked.update(file.name for file in files)
        report.compared = report.total
        _add_damage(table, report)
    except StateStoreError as error:
        if isinstance(error, NotFoundError) and is_gone(error):
            raise
        report.add(problem_of(error, source.path, f"reads of {name}"))
    report.finish()
    return Verification(
        store=name,
        problems=tuple(report.problems),
        notes=tuple(report.notes),
        files=len(report.checked),
        bytes=report.compared,
        segments=0,
        rows=rows,
        log_entries=0,
        checkpoints=0,
        versions=(version, version) if version is not None and source.keeps_versions else None,
        uncommitted=0,
        unreferenced=(),
        cache_bytes=0,
        of_engine=True,
    )


def _read(table: EngineTable, version: int, report: Report) -> int:
    """Read all rows of a version, and return their number."""
    query, rows = Query(version=version), 0
    splits = table.splits(query)
    for number, split in enumerate(splits):
        rows += sum(batch.num_rows for batch in table.read(split, query))
        report.advance(f"part {number + 1} of {len(splits)}", report.total // len(splits))
    return rows


def _add_damage(table: EngineTable, report: Report) -> None:
    """Add damage that a summary shows and that the read did not meet, such as that of files of other states."""
    size = table.source.size(table.state)
    for text in size.problems if size.damaged else ():
        affects = f"{table.name}, or other states in the same files"
        report.add(Problem(ErrorCode.FILE_DAMAGED, table.source.path, text, affects))
