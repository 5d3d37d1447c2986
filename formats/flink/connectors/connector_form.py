"""A form in which a connector writes the elements of a state, and the rows of one element in it.

Flink knows such elements as bytes: it writes the version of the connector's serializer, their length, and what the
serializer made of a split, a committable or the state of a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.errors import CorruptError
from statestore.formats.flink.connectors.element_input import ElementInput

Cells = tuple[Any, ...]
"""The cells of one row, in the order of the form's columns."""
Read = Callable[[ElementInput, int], Iterable[Cells]]
"""Reads the bytes of an element behind its header, given the version of their serializer."""

MOST_BYTES = 16 << 20
"""Bytes of all elements of a state up to which its form is looked for. A split has some hundred bytes."""


@dataclass(frozen=True)
class ConnectorForm:
    """The form ``name``, as users give it in a type; ``about`` says in words which connector writes it.

    ``states`` are the names of states that may be in it without a user's word, ``versions`` those of the serializer.
    ``many``: an element has any number of rows. ``framed``: elements begin with a version and their length.
    """

    name: str
    about: str
    columns: pa.Schema
    read: Read
    versions: range
    states: Sequence[str] = ()
    many: bool = False
    framed: bool = True

    def rows(self, element: bytes, where: str) -> list[Cells]:
        """The rows of an element. Raises CorruptError FLINK_ROW where its bytes are not in this form.

        ``where`` names the state. An element of any number of rows has at least one, of nulls where it has none.
        """
        source = ElementInput(element, where)
        if self.framed:
            version, content = source.versioned(self.versions, self.about)
        else:
            version, content = self.versions.start, source
        found = list(self.read(content, version))
        content.end()
        source.end()
        return found or [(None,) * len(self.columns)]

    def fits(self, elements: Sequence[bytes]) -> bool:
        """Return whether all elements are in this form, to their last byte."""
        try:
            for each in elements:
                self.rows(each, "")
        except CorruptError:
            return False
        return True
