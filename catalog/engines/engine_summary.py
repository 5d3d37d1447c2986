"""Summary of one state of an engine: versions, times and sizes, from metadata only."""

from __future__ import annotations

from statestore.catalog.describe.table_summary import TableSummary
from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError


def summarize_state(table: EngineTable) -> TableSummary:
    """Return the summary of a state.

    Raises NotFoundError if no version can be read, InvalidInputError CONFLICTING_OPTIONS for a table as of a version.
    """
    source, state = table.source, table.state
    if table.bound is not None:
        raise InvalidInputError(
            ErrorCode.CONFLICTING_OPTIONS,
            f"{source.path} was opened as of version {table.bound}, and a summary is of all versions; leave out the "
            "version",
        )
    word, words = source.version_words
    kept = source.kept(state)
    times = [version.time for version in source.versions(state, sorted({kept[0], kept[-1]}))]
    known = [time for time in times if time is not None]
    # A clock may have been set back: the oldest version was valid at most until the newest began.
    first, last = (min(known), known[-1]) if len(known) == len(times) else (None, None)
    size = source.size(state)
    ranges = tuple({f"first_{word}": a, f"last_{word}": b, "partitions": n} for a, b, n in size.partitions)
    return TableSummary(
        version=kept[-1],
        oldest_version=kept[0],
        keys=size.rows,
        rows=size.rows,
        first_time=first,
        last_time=last,
        kept_from=first,
        segments=size.files,
        bytes=size.bytes,
        unreferenced_bytes=size.unreferenced_bytes,
        last_commit=last,
        writer=size.writer,
        partitions=ranges,
        kept=f"{len(kept)} {word if len(kept) == 1 else words}",
        problems=size.problems,
        notes=(_repartitioned(size.partitions, word),) if len(ranges) > 1 else (),
        details=size.details,
        damaged=size.damaged,
    )


def _repartitioned(ranges: tuple[tuple[int, int, int], ...], word: str) -> str:
    """Describe how the number of partitions changed."""
    (_, _, count), *later = ranges
    return f"{count} partitions" + "".join(f", from {word} {first} on {number}" for first, _, number in later)
