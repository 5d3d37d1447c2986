"""Schemas by the ids that a registry gave them, and the one by which all values are read.

A set is text, because it stands in the name of a serde where the text of one schema would stand:

    {"schemas": {"5": ["{...}"], "6": ["{...}"]}, "reader": ["{...}"], "reader_id": 6, "named": false, "registry": null}

A schema is a list: first the schemas that it refers to, at last its own. ``named`` is true where the user chose the
reader. With a ``registry`` more schemas are asked for when their ids occur.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

MARK = '{"schemas": '
Texts = tuple[str, ...]


@dataclass(frozen=True)
class SchemaSet:
    """Schemas by id; ``reader`` is None until it is known, and ``reader_id`` None where it has no id."""

    schemas: Mapping[int, Texts] = field(default_factory=dict)
    reader: Texts | None = None
    reader_id: int | None = None
    named: bool = False
    registry: str | None = None

    @property
    def shown_reader(self) -> str:
        """Words for the reader's schema."""
        return "the schema that was named" if self.reader_id is None else f"schema id {self.reader_id}"


def set_as_text(found: SchemaSet) -> str:
    """Return the text of a set."""
    return json.dumps(
        {
            "schemas": {str(number): list(texts) for number, texts in sorted(found.schemas.items())},
            "reader": None if found.reader is None else list(found.reader),
            "reader_id": found.reader_id,
            "named": found.named,
            "registry": found.registry,
        }
    )


@functools.lru_cache(maxsize=64)
def set_of_text(text: str) -> SchemaSet | None:
    """Return the set whose text `set_as_text` has made; None: the text is that of one schema."""
    if not text.startswith(MARK):
        return None
    found = json.loads(text)
    reader = found["reader"]
    return SchemaSet(
        {int(number): tuple(texts) for number, texts in found["schemas"].items()},
        None if reader is None else tuple(reader),
        found["reader_id"],
        found["named"],
        found["registry"],
    )
