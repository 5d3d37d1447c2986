"""Log entries for tests, a random log, and the plain-Python model of the log state."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import xxhash

from statestore.catalog.log.entries import CommitEntry, Horizon, decode_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.source_versions import CapturedLog, Gap, SourceVersion
from statestore.catalog.log.version_chunks import NUMBERS, TEXTS
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, FileRef, SegmentMeta, to_json

NO_TIME = -1_000


def file_ref(name: str) -> FileRef:
    return FileRef(name, 1946, "5d3de3f63039d6b9", ((0, 656), (656, 464), (1248, 698)))


def segment(number: int) -> SegmentMeta:
    """Key columns of three kinds: text, unknown, integer."""
    return SegmentMeta(
        file=file_ref(f"segments/{number:032x}.arrow"),
        role="delta",
        tombstone=False,
        rows=10,
        min_valid_from=-5_000,
        max_valid_from=number * 1_000,
        min_valid_to=2_000,
        max_valid_to=OPEN,
        min_added=1,
        max_added=number,
        last_closed=0,
        split_closed=0,
        late_added=0,
        max_dropped=0,
        key_groups=(0, 127),
        key_min=("ä", None, -1),
        key_max=("ö", None, 2**63),
        index=file_ref(f"segments/{number:032x}.index.arrow"),
    )


def closure(number: int, of: str, version: int) -> ClosureSlice:
    return ClosureSlice(file_ref(f"segments/{number:032x}.closures.arrow"), of, version, 3, 2, 25_000)


def entry(version: int, **changes: Any) -> CommitEntry:
    """A commit that adds one segment; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "version": version,
        "timestamp": 1_700_000_000_000_000 + version * 1_000,
        "operation": "write" if version else "create",
        "writer": "host:1",
        "transaction": None,
        "stream_time": version * 1_000,
        "added": (segment(version),),
        "removed": (),
        "closures": (),
        "rows": 10,
        "tombstones": 1,
        "closed": 2,
        "bytes": 1946,
        "dropped": 0,
        "horizon": None,
        "changelogs": (),
    }
    return CommitEntry(**{**fields, **changes})


def verbose_commit(path: Path) -> dict[str, Any]:
    """Return the commit in a file of the log in format 2, which names a file wherever it is used."""
    read = decode_entry(f"log/{path.name}", path.read_bytes())
    commit: dict[str, Any] = {"format": 2, "id": read.attempt}
    younger = ("attempt", "source")
    commit |= {field.name: getattr(read, field.name) for field in fields(CommitEntry) if field.name not in younger}
    commit["added"] = [to_json(meta) for meta in read.added]
    commit["closures"] = [to_json(piece) for piece in read.closures]
    commit["horizon"] = None if read.horizon is None else asdict(read.horizon)
    plain_json: dict[str, Any] = json.loads(json.dumps(commit))
    return plain_json


def sealed_commit(commit: dict[str, Any]) -> bytes:
    """Return the file of a commit with the right checksum, in a layout that no release writes."""
    canonical = json.dumps(commit, sort_keys=True, separators=(",", ":"))
    return json.dumps({"checksum": xxhash.xxh3_64_hexdigest(canonical.encode()), "commit": commit}).encode()


def random_log(count: int, seed: int) -> list[CommitEntry]:
    """Commits that add, remove and close segments, with transactions, horizons and changelogs; about ten live ones."""
    dice = random.Random(seed)
    live: list[str] = []
    log = []
    for version in range(count):
        removed = tuple(live.pop(dice.randrange(len(live))) for _ in range(len(live) > dice.randrange(20)))
        closed = dice.sample(live, min(len(live), dice.randrange(3)))
        added = tuple(replace(segment(4 * version + i), max_added=version) for i in range(dice.randrange(3)))
        live += [meta.name for meta in added]
        log.append(
            entry(
                version,
                added=added,
                removed=removed,
                closures=tuple(closure(4 * version + i, name, version) for i, name in enumerate(closed)),
                transaction=(dice.choice("ab"), dice.randrange(count)) if dice.random() < 0.5 else None,
                stream_time=None if dice.random() < 0.2 else dice.randrange(10**6) * 1_000,
                horizon=Horizon(version * 10, version) if dice.random() < 0.1 else None,
                changelogs=((f"{version:020d}-x.changelog", dice.randrange(10**6)),) if dice.random() < 0.7 else (),
                rows=dice.randrange(100),
                dropped=dice.randrange(3),
            )
        )
    return log


def captured_log(log: list[CommitEntry], begins: int, seed: int) -> list[CommitEntry]:
    """These commits in a store with an identity, of which many from ``begins`` on captured a version of a source."""
    dice = random.Random(seed)
    number, time, found = dice.randrange(5), 0, []
    for commit in log:
        source, transaction = None, commit.transaction
        if commit.version >= begins and dice.random() < 0.8:
            before, number, time = number, number + dice.choice((1, 1, 2, 9)), time + dice.randrange(3) * 1_000
            missing = (before + 1, number - 1) if number > before + 1 and dice.random() < 0.7 else None
            watermark, offsets = dice.choice((None, time - 5)), dice.choice((None, '{"ä":[1]}'))
            source, transaction = SourceVersion(number, time, watermark, offsets, missing), ("capture:x", number)
        operation = "write" if source else commit.operation
        found.append(replace(commit, store="s" * 32, operation=operation, transaction=transaction, source=source))
    return found


def captured_of(log: list[CommitEntry], most: int) -> CapturedLog | None:
    """The captured versions of these commits, with at most so many gaps, from a list of them all."""
    found = [(commit.version, commit.source) for commit in log if commit.source is not None]
    gaps = [
        Gap(*source.missing, found[place - 1][1].time if place else None, source.time, version)
        for place, (version, source) in enumerate(found)
        if source.missing
    ]
    if not found:
        return None
    return CapturedLog(found[0][1].time, found[-1][1], found[-1][0], tuple(gaps[-most:]), len(gaps) <= most)


def folded(log: list[CommitEntry]) -> dict[str, Any]:
    """The log state after these commits, by the plainest means: the model for comparisons with `LogState`."""
    segments: list[SegmentMeta] = []
    closures: dict[str, list[ClosureSlice]] = {}
    changelogs: dict[str, int] = {}
    horizon, stream_time = None, NO_TIME
    columns: dict[str, list[Any]] = {name: [] for name in (*NUMBERS, *TEXTS)}
    for commit in log:
        segments = [meta for meta in segments if meta.name not in commit.removed] + list(commit.added)
        for name in commit.removed:
            closures.pop(name, None)
        for piece in commit.closures:
            closures.setdefault(piece.segment, []).append(piece)
        changelogs.update(commit.changelogs)
        horizon = commit.horizon or horizon
        stream_time = stream_time if commit.stream_time is None else commit.stream_time
        for name in columns:
            columns[name].append(stream_time if name == "stream_time" else getattr(commit, name))
    return {
        "version": len(log) - 1,
        "segments": segments,
        "closures": closures,
        "changelogs": changelogs,
        "horizon": None if horizon is None else asdict(horizon),
        **columns,
    }


def plain(log_state: LogState) -> dict[str, Any]:
    """Return a log state in the form of the model."""
    versions = log_state.versions
    return {
        "version": log_state.version,
        "segments": list(log_state.segments),
        "closures": {name: list(pieces) for name, pieces in log_state.closures.items()},
        "changelogs": dict(log_state.changelogs),
        "horizon": None if log_state.horizon is None else asdict(log_state.horizon),
        **{name: getattr(versions, name).tolist() for name in NUMBERS},
        **{name: list(getattr(versions, name)) for name in TEXTS},
    }
