"""Versions of versioned stores from their changelogs: answers of the real stores, and random puts one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.kafka.changelog_loops import changelog_loops
from support.kafka.log_files import Logged
from support.kafka.made_logs import MadeLog, changelog_log, random_records
from support.kafka.real_applications import APPLICATIONS, Row, application, form_of, plain_rows
from support.parameters import mostly_slow

from statestore.formats.kafka.changelogs.record_log import END, LogMoment
from statestore.formats.kafka.changelogs.version_history import KEEP_ALL, VersionedRules, versions, versions_at
from statestore.formats.kafka.columns.store_kinds import logged_rows

__all__ = ["changelog_loops"]

VERSIONED = [
    pytest.param(name, store["name"], id=f"{name}-{store['name']}")
    for name in APPLICATIONS
    for store in application(name).stores()
    if store["kind"] == "versioned"
]


def decoded(store: dict[str, Any], batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch of versions with decoded keys and values."""
    rows = plain_rows(
        logged_rows(form_of(store), *(batch.column(name) for name in ("key", "value", "valid_from", "headers")))
    )
    ends = batch.column("valid_to").to_pylist()
    return [
        {**{name: row[name] for name in ("key", "value", "valid_from")}, "valid_to": end}
        for row, end in zip(rows, ends, strict=True)
    ]


@pytest.mark.parametrize(("name", "store"), VERSIONED)
def test_the_real_store_gives_the_same_versions(name: str, store: str) -> None:
    """Its newest values, each as-of answer, and all versions of each key where the release has that query."""
    found = next(each for each in application(name).stores() if each["name"] == store)
    rules = VersionedRules(found["history_retention_ms"], found["segment_interval_ms"])
    asked = listed = 0
    for part in found["partitions"]:
        log = changelog_log(name, found["changelog"], part["partition"])
        rows = [row for batch in versions([log], rules) for row in decoded(found, batch)]
        newest = {repr(row["key"]): (row["value"], row["valid_from"]) for row in rows if row["valid_to"] is None}
        assert newest == {repr(row["key"]): (row["value"], row["valid_from"]) for row in part["rows"]}
        for time in {answer["as_of"] for answer in part["as_of"]}:
            batches = versions_at([log], time, rules)
            at = {repr(row["key"]): row for batch in batches for row in decoded(found, batch)}
            for each in part["as_of"]:
                if each["as_of"] == time:
                    answer = at.get(repr(each["key"]))
                    given = answer and {"value": answer["value"], "valid_from": answer["valid_from"]}
                    assert given == each["answer"]
                    asked += 1
        if "versions" in part:
            assert sorted(map(version, rows)) == sorted(map(version, part["versions"]))
            listed += len(rows)
    assert asked > 10 and (listed > 10 or name == "ledger")


def version(row: Row) -> tuple[str, int, str, Any]:
    return repr(row["key"]), row["valid_from"], repr(row["value"]), row["valid_to"]


def accepted(
    records: list[Logged], rules: VersionedRules, moment: LogMoment
) -> tuple[dict[bytes, dict[int, Logged]], int]:
    """The puts by key and time, and the stream time after them."""
    table: dict[bytes, dict[int, Logged]] = {}
    stream_time = -1
    for record in records:
        if moment.time is not None and max(stream_time, record.timestamp) > moment.time:
            break
        if record.key is None:
            continue
        if rules.history_retention is None or record.timestamp >= stream_time - rules.history_retention:
            stream_time = max(stream_time, record.timestamp)
            table.setdefault(record.key, {})[record.timestamp] = record
    return table, stream_time


def model(records: list[Logged], rules: VersionedRules, moment: LogMoment, *, expired: bool) -> list[dict[str, Any]]:
    table, stream_time = accepted(records, rules, moment)
    rows = []
    for puts in table.values():
        times = sorted(puts)
        for time, end in zip(times, [*times[1:], None], strict=True):
            if puts[time].value is None:
                continue
            least = int((stream_time - (rules.history_retention or 0)) / rules.interval)
            may_expire = rules.history_retention is not None and not expired
            if end is not None and may_expire and int(end / rules.interval) < least:
                continue
            row = puts[time].row()
            del row["timestamp"]
            rows.append({**row, "valid_from": time, "valid_to": end})
    return sorted(rows, key=lambda row: int(row["offset"]))


RULES = (KEEP_ALL, VersionedRules(30, 10), VersionedRules(200, 50), VersionedRules(0, 2000))


@pytest.mark.parametrize("seed", mostly_slow(range(30), 5))
@pytest.mark.usefixtures("changelog_loops")
def test_puts_one_by_one_give_the_same_versions(seed: int) -> None:
    records = random_records(seed, gaps=seed % 2 == 0)
    log = MadeLog(records)
    for rules in RULES:
        for moment in (END, LogMoment(time=1100)):
            for expired in (False, True):
                found = [row for batch in versions([log], rules, moment, expired=expired) for row in batch.to_pylist()]
                assert found == model(records, rules, moment, expired=expired)
            table, stream_time = accepted(records, rules, moment)
            for time in range(880, 1400, 41):
                wanted = {}
                for key, puts in table.items():
                    newest, past = max(puts), [start for start in puts if start <= time]
                    old = rules.history_retention is not None and time < stream_time - rules.history_retention
                    if past and (newest <= time or not old) and puts[max(past)].value is not None:
                        wanted[key] = puts[max(past)].value
                batches = versions_at([log], time, rules, moment)
                assert {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()} == wanted


def test_a_refused_put_is_in_the_log_and_not_in_the_store() -> None:
    log = MadeLog([Logged(0, 63, b"b", b"1"), Logged(1, 32, b"a", b"2"), Logged(2, 33, b"a", b"3")])
    found = [row for batch in versions([log], VersionedRules(30)) for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["valid_from"]) for row in found] == [(b"b", b"1", 63), (b"a", b"3", 33)]
