"""Keys that an edit erases, searched in operator state that the edit leaves as it is.

Operator state has no keys, so an edit by key does not find a person there, and what sources and sinks keep is bytes to
everybody else. The bytes of a text are searched in it, as far as that takes no time that anybody would notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from statestore.formats.edits import StateEdit
from statestore.formats.errors import StateStoreError
from statestore.formats.flink.columns.value_bytes import value_bytes
from statestore.formats.flink.followed_rows import KeyedSource
from statestore.formats.flink.serializers.flink_types import Basic
from statestore.formats.flink.state_at import ElementsAt
from statestore.formats.flink.streams.operator_rows import element_cells
from statestore.formats.flink.streams.state_form import KEY

_LEAST_BYTES, _MOST_KEYS, _MOST_BYTES = 4, 100, 16 << 20


def erased_texts(edits: Iterable[StateEdit]) -> set[str]:
    """The keys that lose rows in some state and get none there, where they are texts."""
    found: set[str] = set()
    for edit in edits:
        if KEY in edit.removed.schema.names and pa.types.is_string(edit.removed.schema.field(KEY).type):
            gone, come = (set(rows.column(KEY).unique().to_pylist()) for rows in (edit.removed, edit.added))
            found |= {key for key in gone - come if key is not None}
    return found


def notes_of_elements(source: KeyedSource, version: int, texts: set[str], edited: Collection[str]) -> Iterator[str]:
    """Yield which operator states, but those that are edited, have the bytes of how many texts."""
    if not texts or len(texts) > _MOST_KEYS:
        return
    wanted = [(text.encode("utf-8", "replace"), value_bytes(Basic("string"), text)[1:]) for text in texts]
    wanted = [each for each in wanted if len(each[0]) >= _LEAST_BYTES]
    for state in source.states():
        content = b"" if state in edited else _content(source, state, version)
        count = sum(any(octets in content for octets in each) for each in wanted)
        if count:
            yield (
                f"the bytes of {count} keys whose rows are removed occur in {state}, which belongs to no key and stays "
                "as it is: look whether they are of what is to be erased"
            )


def _content(source: KeyedSource, state: str, version: int) -> bytes:
    """The elements of an operator state, one after another; nothing for other states, and for very large ones."""
    try:
        at = source.at(state, version)
        if not isinstance(at, ElementsAt):
            return b""
        found: list[bytes] = []
        for stored in at.stored:
            with at.files_of.open_at(stored.handle.stream) as part:
                if part.size > _MOST_BYTES:
                    return b""
                cells = element_cells(at.form.name, part, stored.handle, stored.header.compressed)
                found += [cells.cell(number) for number in range(len(cells))]
    except StateStoreError:  # which reads of that state tell
        return b""
    return b"\n".join(found)
