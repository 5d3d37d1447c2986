"""Ids of schemas in front of values, as the serializers of each registry write them, and as users and files name them.

    (none)       00 | id:int32                    Confluent, Karapace, Redpanda, Apicurio 3
    -apicurio    00 | global id:int64             Apicurio 2
    -glue        03 | 00 or 05 | version id:16    AWS Glue; with 05 the value behind it is compressed by zlib

The first column ends the name of a serde: ``avro:``, ``avro-apicurio:``, ``avro-glue:``. Ids are integers here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class IdForm:
    """A form of ids: the first byte, where the id begins and ends, and the pattern of its text."""

    suffix: str
    first: int
    begin: int
    end: int
    pattern: str
    is_uuid: bool = False

    def id_of(self, text: str) -> int | None:
        """The id of a text of the pattern; None: too large."""
        found = uuid.UUID(text).int if self.is_uuid else int(text)
        return found if self.is_uuid or found < 1 << 8 * (self.end - self.begin) - 1 else None

    def text_of(self, number: int) -> str:
        """An id as users and files name it."""
        return str(uuid.UUID(int=number)) if self.is_uuid else str(number)

    def texts_of(self, numbers: Iterable[int]) -> str:
        """Some ids for a message."""
        return ", ".join(self.text_of(number) for number in sorted(numbers)[:20])

    def id_in(self, value: bytes) -> int | None:
        """The id in front of a value; None where there is none."""
        if len(value) < self.end or value[0] != self.first:
            return None
        number = int.from_bytes(value[self.begin : self.end], "big", signed=not self.is_uuid)
        return number if number >= 0 else None


CONFLUENT = IdForm("", 0, 1, 5, r"\d{1,10}")
APICURIO = IdForm("-apicurio", 0, 1, 9, r"\d{1,19}")
GLUE = IdForm("-glue", 3, 2, 18, r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", True)
GLUE_COMPRESSED = 5
_FORMS = (APICURIO, GLUE)


def id_form(serde: str) -> IdForm:
    """The form of ids that a serde of this name has: "avro-glue:..." those of Glue."""
    prefix = serde.partition(":")[0].strip()
    return next((form for form in _FORMS if prefix.endswith(form.suffix)), CONFLUENT)
