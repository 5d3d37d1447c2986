"""History and change feed of random changelogs, against a walk record by record."""

from __future__ import annotations

from typing import Any

import pytest
from support.kafka.changelog_loops import changelog_loops
from support.kafka.log_files import Logged
from support.kafka.made_logs import MadeLog, prefix, random_records
from support.parameters import mostly_slow

from statestore.formats.kafka.changelogs.record_history import changes, history
from statestore.formats.kafka.changelogs.record_log import END, LogMoment

__all__ = ["changelog_loops"]

MOMENTS = (END, LogMoment({0: 25}), LogMoment(time=1100))


def missing_below(records: list[Logged], offset: int) -> int:
    return offset - sum(record.offset < offset for record in records)


def history_model(records: list[Logged], moment: LogMoment) -> list[dict[str, Any]]:
    kept = [record for record in prefix(records, moment) if record.key is not None]
    rows = []
    for number, record in enumerate(kept):
        if record.value is None:
            continue
        later = [other for other in kept[number + 1 :] if other.key == record.key]
        earlier = [other for other in kept[:number] if other.key == record.key]
        if later:
            end = missing_below(records, later[0].offset)
        elif moment is END:
            end = records[-1].offset + 1 - len(records)
        else:
            end = missing_below(records, kept[-1].offset)
        here = missing_below(records, record.offset)
        row = record.row()
        row["valid_from"] = row.pop("timestamp")
        rows.append(
            {
                **row,
                "next_offset": later[0].offset if later else None,
                "valid_to": later[0].timestamp if later else None,
                "missing_before": here - (missing_below(records, earlier[-1].offset) if earlier else 0),
                "missing_after": end - here,
            }
        )
    return rows


def changes_model(records: list[Logged], moment: LogMoment, since: LogMoment | None) -> list[dict[str, Any]]:
    table: dict[bytes, Logged] = {}
    begin = 0 if since is None else len(prefix(records, since))
    rows = []
    for number, record in enumerate(prefix(records, moment)):
        if record.key is None:
            continue
        known = record.key in table or missing_below(records, record.offset) == 0
        before = table.get(record.key)
        lived = before is not None and before.value is not None
        table[record.key] = record
        if number < begin or (known and not lived and record.value is None):
            continue
        kind = "delete" if record.value is None else "update" if lived else "insert"
        row, old = record.row(), before.row() if lived and before is not None else {}
        rows.append(
            {
                **{name: row[name] for name in ("partition", "offset", "timestamp", "key")},
                "change": kind if known or record.value is None else None,
                "before_known": known,
                "before_offset": old.get("offset"),
                "before_timestamp": old.get("timestamp"),
                "before": old.get("value"),
                "before_headers": old.get("headers"),
                "after": row["value"],
                "after_headers": row["headers"],
            }
        )
    return rows


@pytest.mark.parametrize("seed", mostly_slow(range(25), 3))
@pytest.mark.usefixtures("changelog_loops")
def test_history_is_each_record_until_the_next_of_its_key(seed: int) -> None:
    records = random_records(seed, gaps=seed % 2 == 0)
    for moment in MOMENTS:
        found = [row for batch in history([MadeLog(records)], moment) for row in batch.to_pylist()]
        assert found == history_model(records, moment)


@pytest.mark.parametrize("seed", mostly_slow(range(25), 5))
@pytest.mark.usefixtures("changelog_loops")
def test_changes_have_what_was_before(seed: int) -> None:
    records = random_records(seed, gaps=seed % 2 == 0)
    for moment in MOMENTS:
        for since in (None, LogMoment({0: 8}), LogMoment(time=1050)):
            found = [row for batch in changes([MadeLog(records)], moment, since=since) for row in batch.to_pylist()]
            assert found == changes_model(records, moment, since)


@pytest.mark.parametrize("held", [pytest.param(1000, marks=pytest.mark.slow), 8000])
@pytest.mark.usefixtures("changelog_loops")
def test_a_partition_larger_than_memory_is_read_in_ranges_of_keys(held: int) -> None:
    records = [Logged(n, 1000 + n, b"key-%d" % (n % 90), b"%d" % n if n % 7 else None) for n in range(500)]
    log = MadeLog(records, piece=50)
    batches = list(changes([log], held_bytes=held))
    found = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: int(row["offset"]))
    assert found == changes_model(records, END, None)
    assert len(batches) > 3
    old = [row for batch in history([log], held_bytes=held) for row in batch.to_pylist()]
    assert sorted(old, key=lambda row: int(row["offset"])) == history_model(records, END)


def test_compaction_makes_the_first_change_of_a_key_unknown() -> None:
    """Offset 0 is missing: whether a existed is unknown, and so is what its delete removed."""
    log = MadeLog([Logged(1, 5, b"a", b"1"), Logged(2, 6, b"b", None), Logged(3, 7, b"a", b"2")])
    found = [row for batch in changes([log]) for row in batch.to_pylist()]
    assert [(row["change"], row["before_known"], row["before"]) for row in found] == [
        (None, False, None),
        ("delete", False, None),
        ("update", True, b"1"),
    ]
    assert not log.findings.is_complete


def test_without_offsets_nothing_is_claimed() -> None:
    log = MadeLog([Logged(0, 5, b"a", b"1"), Logged(1, 6, b"a", b"2")], offsets=False)
    first, second = [row for batch in changes([log]) for row in batch.to_pylist()]
    assert (first["change"], second["change"], second["before"]) == (None, "update", b"1")
    rows = [row for batch in history([log]) for row in batch.to_pylist()]
    assert [(row["offset"], row["missing_before"], row["missing_after"]) for row in rows] == [(None, None, None)] * 2
    assert log.findings.missing_offsets is None and "no offsets" in log.findings.notes()[0]


def test_an_empty_log_has_no_history() -> None:
    assert list(history([MadeLog([])])) == [] == list(changes([MadeLog([])]))
