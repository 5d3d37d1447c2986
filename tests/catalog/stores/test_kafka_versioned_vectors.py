"""Kafka's own cases for versioned stores, and cases derived from its source, through the public API.

With serde "kafka" the store has a hot tier, and ``physical`` operations compare its bytes; other stores have none, and
neither need the bytes be Kafka's after the tier was lost and made anew from the table. Where a case has
``expect_complete`` that is the truth here: see docs/decisions/022-kafka-semantics.md.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.paths import DATA

import statestore

NOT_PUT = -(2**63)
CASES = json.loads(gzip.decompress((DATA / "versioned.json.gz").read_bytes()))["cases"]


def as_case(record: statestore.Record | None) -> dict[str, Any] | None:
    return (
        None
        if record is None
        else {"value": record.value, "valid_from": record.valid_from, "valid_to": record.valid_to}
    )


class Kafka:
    """The operations of the cases on a store; ``after_put`` runs after each operation that writes."""

    def __init__(self, catalog: statestore.Catalog, store: dict[str, Any], upkeep: str, serde: str) -> None:
        self.catalog = catalog
        self.upkeep = upkeep
        self.store: Any = catalog.create_store(
            "s",
            kind="versioned",
            key={"key": "string"},
            value={"value": "string"},
            history_retention=store["history_retention_ms"],
            segment_interval=store["segment_interval_ms"],
            serde=serde,
        )

    def run(self, op: dict[str, Any]) -> Any:
        result = getattr(self, op["op"])(op)
        if op["op"] in ("put", "delete", "restore"):
            self.keep_up()
        return result

    def keep_up(self) -> None:
        if self.upkeep != "live":
            self.store.commit()
        if self.upkeep == "compacted":
            self.store.compact(full=True)
        if self.upkeep in ("reopened", "lost"):
            self.store.close()
            if self.upkeep == "lost":
                shutil.rmtree(self.catalog.root / "s" / "live")
            self.store = self.catalog.open_store("s")

    def put(self, op: dict[str, Any]) -> int:
        accepted, valid_to = self.store.put(op["key"], op["value"], timestamp=op["ts"])
        return NOT_PUT if not accepted else -1 if valid_to is None else valid_to

    def delete(self, op: dict[str, Any]) -> Any:
        return as_case(self.store.delete(op["key"], timestamp=op["ts"]))

    def get(self, op: dict[str, Any]) -> Any:
        return as_case(self.store.get(op["key"]))

    def get_as_of(self, op: dict[str, Any]) -> Any:
        return as_case(self.store.get(op["key"], as_of=op["as_of"]))

    def get_versions(self, op: dict[str, Any]) -> Any:
        ascending = op["order"] == "ascending"
        return [as_case(r) for r in self.store.get_versions(op["key"], op["from"], op["to"], ascending=ascending)]

    def restore(self, op: dict[str, Any]) -> None:
        self.store.restore([(r["key"], r["value"], r["ts"]) for r in op["records"]])

    def dropped(self, op: dict[str, Any]) -> int:
        return int(self.store.dropped_records)

    def observed_stream_time(self, op: dict[str, Any]) -> int:
        return int(self.store.observed_stream_time)

    def physical(self, op: dict[str, Any]) -> list[dict[str, str]]:
        return [{"key_hex": key.hex(), "value_hex": value.hex()} for _, key, value in self.store.physical()]


UPKEEP = [("natural", upkeep) for upkeep in ("live", "committed", "compacted", "reopened")]
UPKEEP += [("kafka", upkeep) for upkeep in ("live", "committed", "compacted", "reopened", "lost")]


@pytest.mark.parametrize(
    ("serde", "upkeep", "case"),
    [
        pytest.param(serde, upkeep, case, id=f"{case['id']}-{serde}-{upkeep}", marks=() if quick else pytest.mark.slow)
        for number, case in enumerate(CASES)
        for serde, upkeep, quick in (
            (*kept_up, (number + turn) % len(UPKEEP) == 0) for turn, kept_up in enumerate(UPKEEP)
        )
    ],
)
def test_case(case: dict[str, Any], serde: str, upkeep: str, tmp_path: Path) -> None:
    """Every answer is Kafka's, whether the puts are pending, committed, compacted or read by another handle.

    The fast run has each case in one of the nine ways.
    """
    kafka = Kafka(statestore.connect(tmp_path), case["store"], upkeep, serde)
    for number, op in enumerate(case["ops"]):
        if op["op"] == "physical" and (serde == "natural" or upkeep == "lost"):
            continue
        result = kafka.run(op)
        if "expect" in op:
            assert result == op.get("expect_complete", op["expect"]), f"operation {number}: {op}"


def test_every_operation_is_known() -> None:
    """A new kind of operation in the cases would otherwise be skipped in silence."""
    known = {name for name in vars(Kafka) if not name.startswith("_")}
    assert {op["op"] for case in CASES for op in case["ops"]} <= known
