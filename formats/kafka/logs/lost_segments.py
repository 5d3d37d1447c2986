"""Records that a partition's log has lost, as the files beside its segments show.

Reads need only the segments. A broker writes beside them what its log had: indexes of each segment (offset and
position, time and offset, or aborted transactions), snapshots of producers named by the offset at which they were
taken, the offsets at which leaders began. One level up are the offsets up to which all partitions were flushed,
replicated and cleaned. None of these goes beyond the end of a log that is whole.

A gap between two segments is normal where the cleaner has been, because compaction removes records. It never is at or
behind the first offset that is not cleaned yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from statestore.formats.engine import FileFinding
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.logs.log_directory import base_offset
from statestore.formats.kafka.logs.log_reading import SegmentLog
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import read_regular

_BESIDE = re.compile(r"([0-9]{20})\.(index|timeindex|txnindex|snapshot)")
_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])
_ABORTED_ENTRY = np.dtype(
    [("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")]
)
_MOST_INDEX_BYTES, _MOST_CHECKPOINT_BYTES = 256 << 20, 16 << 20
_EPOCHS, _CLEANED, _STARTS = "leader-epoch-checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint"
_REACHED = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
_EPOCH = re.compile(r"(?m)^\d{1,10} (\d{1,19})$")
_LINE = re.compile(r"([A-Za-z0-9._-]{1,249}) (\d{1,10}) (\d{1,19})")


def lost_segments(log: SegmentLog) -> list[FileFinding]:
    """Return what the log has lost. A file beside its segments that cannot be read shows nothing.

    What may be normal is left out where something is surely lost.
    """
    found = list(_findings(log))
    return [each for each in found if each.damaged] or found


def _findings(log: SegmentLog) -> Iterator[FileFinding]:
    folder = Path(log.files[0].path).parent
    names = {base_offset(Path(file.path).name): file.path for file in log.files}
    ends = dict(zip(names, log.ends, strict=True))
    stops = dict(zip(names, (file.stop for file in log.files), strict=True))
    end, missing = log.ends[-1], set[int]()
    with disk_errors("list", folder):
        beside = sorted(each.name for each in folder.iterdir())
    for name in beside:
        found = _BESIDE.fullmatch(name)
        if found is None:
            continue
        base, kind = int(found[1]), found[2]
        if kind == "snapshot":
            if base > end:
                yield _short(log, names, f"{name} was taken at offset {base}", end)
        elif base not in names:
            if base in missing:  # told by another of its indexes
                continue
            missing.add(base)
            yield FileFinding(
                str(folder / f"{found[1]}.log"),
                f"{folder}/{found[1]}.log: this segment of partition {log.partition} is missing, for {name} is there; "
                "restore it from a copy or another replica",
            )
        elif kind != "txnindex":
            yield from _beyond_index(folder / name, base, names[base], ends[base], stops[base])
        elif base == max(names):  # the cleaner may remove the end of a transaction from the others
            aborted = _last_aborted(folder / name)
            if aborted >= end:
                yield _short(log, names, f"{name} has a transaction up to offset {aborted}", end)
    yield from _beyond_checkpoints(log, folder, names, end)
    yield from _zeros(log)
    yield from _gaps(log, folder, names)


def _beyond_index(index: Path, base: int, segment: str, end: int, stop: int) -> Iterator[FileFinding]:
    """An index that knows more than its segment holds. Entries that are not used yet are zeros."""
    is_time = index.suffix == ".timeindex"
    entry = _TIME_ENTRY if is_time else _OFFSET_ENTRY
    data = _content(index, _MOST_INDEX_BYTES)
    found = np.frombuffer(data, entry, len(data) // entry.itemsize)
    if not len(found):
        return
    offset = base + int(found["offset"].max())
    position = 0 if is_time else int(found["position"].max())
    used = bool(found["time"].any()) if is_time else position > 0
    if used and (offset >= end or position >= stop):
        at = "" if is_time else f" at byte {position}"
        yield FileFinding(
            segment,
            f"{segment}: ends at byte {stop} before offset {end}, but {index.name} has offset {offset}{at}: the file "
            "was cut, or copied while its broker wrote; restore it from a copy or another replica",
        )


def _last_aborted(index: Path) -> int:
    """The offset at which the last aborted transaction of a segment ends, -1 where there is none."""
    data = _content(index, _MOST_INDEX_BYTES)
    found = np.frombuffer(data, _ABORTED_ENTRY, len(data) // _ABORTED_ENTRY.itemsize)
    known = found["last"][found["version"] == 0]
    return int(known.max()) if len(known) else -1


def _zeros(log: SegmentLog) -> Iterator[FileFinding]:
    """Zeros behind the last batch, which a broker writes ahead where it is told to, and which a crash may leave."""
    last = log.files[-1]
    try:
        size = Path(last.path).stat().st_size
    except OSError:
        return
    if log.findings.tail is None and size > last.stop:
        yield FileFinding(
            last.path,
            f"{last.path}: the {size - last.stop} bytes from byte {last.stop} on are zeros: the broker preallocated "
            "them (log.preallocate), or what was written there is lost",
            damaged=False,
        )


def _beyond_checkpoints(log: SegmentLog, folder: Path, names: dict[int, str], end: int) -> Iterator[FileFinding]:
    starts = sorted(int(start) for start in _EPOCH.findall(_text(folder / _EPOCHS)))
    first = min(names)
    if starts and starts[-1] > end:
        yield _short(log, names, f"{_EPOCHS} has a leader from offset {starts[-1]} on", end)
    for name in _REACHED:
        reached = _offset(folder.parent / name, log)
        if reached is not None and reached > end:
            yield _short(log, names, f"{name} has offset {reached}", end)
    begun = _offset(folder.parent / _STARTS, log)
    known = starts[0] if starts and begun is None else begun
    if known is not None and known < first:
        yield FileFinding(
            names[first],
            f"{names[first]}: is the first segment of partition {log.partition}, whose log began at offset {known} "
            f"({_EPOCHS if begun is None else _STARTS}): the segments before it are missing; restore them from a copy "
            "or another replica",
        )


def _gaps(log: SegmentLog, folder: Path, names: dict[int, str]) -> Iterator[FileFinding]:
    """Gaps between segments: lost where nothing was cleaned yet, compacted or lost where that is not known."""
    cleaned = _offset(folder.parent / _CLEANED, log)
    for (base, path), end in zip(list(names.items())[1:], log.ends, strict=False):
        if base <= end:
            continue
        if cleaned is not None and base > cleaned:
            yield FileFinding(
                path,
                f"{path}: offsets {end} to {base - 1} before this segment are missing, and {_CLEANED} says that from "
                f"{cleaned} on nothing was compacted: a segment is lost or cut; restore it from a copy or another "
                "replica",
            )
        elif cleaned is None:
            yield FileFinding(
                path,
                f"partition {log.partition}: offsets {end} to {base - 1} before {Path(path).name} are missing: "
                "compacted, or a segment is lost or cut",
                damaged=False,
            )


def _short(log: SegmentLog, names: dict[int, str], known: str, end: int) -> FileFinding:
    last = names[max(names)]
    return FileFinding(
        last,
        f"{last}: the log of partition {log.partition} ends here before offset {end}, but {known}: the file was cut, "
        "or segments behind it are missing; restore them from a copy or another replica",
    )


def _offset(path: Path, log: SegmentLog) -> int | None:
    """The offset of the partition in a checkpoint of the broker: a version, a count, and lines of three fields."""
    for line in _text(path).split("\n")[2:]:
        found = _LINE.fullmatch(line.strip())
        if found is not None and found[1] == log.topic and int(found[2]) == log.partition:
            return int(found[3])
    return None


def _text(path: Path) -> str:
    return _content(path, _MOST_CHECKPOINT_BYTES).decode("ascii", "replace")


def _content(path: Path, most: int) -> bytes:
    try:
        return read_regular(path, most)
    except (FileNotFoundError, NotADirectoryError, StateStoreError):
        return b""
