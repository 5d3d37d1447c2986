"""Faults of exports as texts: bytes that were replaced, nulls that look like a text, times that are absent."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kafka.changelogs.export_forms import RecordForm

UNKNOWN_TIME = -1
"""The timestamp of a record without one, as Kafka has it (``RecordBatch.NO_TIMESTAMP``)."""
_REPLACEMENT = "\ufffd"


@dataclass
class TextFaults:
    """Counts over the records of a partition. ``nulls`` may be texts that were no null."""

    replaced: int = 0
    nulls: int = 0
    null_text: str = ""
    without_time: int = 0

    @property
    def times_known(self) -> bool:
        """Whether each record has a timestamp."""
        return not self.without_time

    def note(self, batch: pa.RecordBatch, form: RecordForm) -> None:
        """Count the faults of a batch of RECORDS that was read from a file of this form."""
        self.without_time += _count(pc.less(batch.column("timestamp"), 0))
        cells = [batch.column(name) for name in ("key", "value")]
        if form.encoding == "utf-8":
            replaced = [pc.match_substring(each, _REPLACEMENT.encode()).fill_null(False) for each in cells]
            self.replaced += _count(pc.or_(*replaced))
        if (form.null is not None and not form.null_given) or form.omits:
            self.nulls += _count(pc.or_(*(each.is_null() for each in cells)))
            self.null_text = "left out, as empty ones are" if form.omits else f"the text {(form.null or b'').decode()}"

    def remarks(self, subject: str) -> tuple[str, ...]:
        """Sentences for who reads the records."""
        found = []
        if self.replaced:
            found.append(
                f"{subject}: {self.replaced} records have U+FFFD in key or value, which programs put in place of bytes "
                "that are no UTF-8: these bytes may be lost; export the topic with kcat -J or in hexadecimal"
            )
        if self.nulls:
            found.append(
                f"{subject}: {self.nulls} records have a key or value that is {self.null_text}, and it is read as null"
            )
        return tuple(found)


def _count(mask: pa.BooleanArray) -> int:
    return int(pc.sum(mask).as_py() or 0)
