"""An edit of a keyed state as changes of its stored entries.

An entry is what a stored key has: a value, an entry of a map, a timer, or a whole list. The rows of an edit are brought
together by entry. Those that take the place of others, or are new, are written in the bytes of Flink's serializers; the
key group of a new key follows from Java's hash code of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.columns.renewed_bytes import hides
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.edits.key_search import KeySearch, columns_of, distinct, in_schema
from statestore.formats.flink.edits.list_changes import ListChanges, PositionError, list_changes
from statestore.formats.flink.edits.new_entries import EntryWriter, NotWrittenError
from statestore.formats.flink.serializers.flink_types import FlinkType, PojoOf, replaced
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.state_form import PLACEMENT, POSITION, TIMESTAMP_MS, KeyedForm
from statestore.formats.kernels.arrays import Bools, Ints


@dataclass(frozen=True)
class StateChanges:
    """The changes of a state in ``form``, each of one entry, with what finds them among stored entries.

    ``names`` are the columns that tell entries apart, ``rows`` has them for each change. ``removed`` and ``added`` are
    masks of the changes with rows that go, and with rows that come; ``values`` are the stored values of the latter,
    but for lists, which have ``lists``. Of entries that may be new, ``keys`` are the stored keys behind the key group,
    and ``group`` is that group, else -1. ``search`` finds the change of a key. ``given`` are the values that take the
    place of stored ones whose columns tell less than their bytes, by the number of the change: they are written when
    these are met.
    """

    form: KeyedForm
    groups: int
    origin: str
    names: tuple[str, ...]
    rows: pa.Table = field(repr=False)
    removed: Bools = field(repr=False)
    added: Bools = field(repr=False)
    values: pa.BinaryArray = field(repr=False)
    lists: ListChanges | None = field(repr=False)
    keys: pa.BinaryArray = field(repr=False)
    group: Ints = field(repr=False)
    search: KeySearch = field(repr=False)
    given: Mapping[int, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.removed)

    @property
    def width(self) -> int:
        """The bytes of the key group in front of stored keys."""
        return prefix_width(self.groups)

    def found(self, columns: Mapping[str, pa.Array]) -> Ints:
        """The change of each stored entry, by the columns of its key; -1 where it has none."""
        return self.search.found([columns[name] for name in self.names])

    @cached_property
    def _new(self) -> tuple[Ints, Ints]:
        """The changes whose entries may be new, by key group, and these groups."""
        numbers = np.flatnonzero(~self.removed)
        numbers = numbers[np.argsort(self.group[numbers], kind="stable")]
        return numbers, self.group[numbers]

    def new_groups(self) -> list[int]:
        """The key groups of entries that may be new, ascending."""
        return [int(each) for each in np.unique(self._new[1])]

    def new_in(self, group: int) -> Ints:
        """The changes in a key group whose entries may be new."""
        numbers, groups = self._new
        start, stop = np.searchsorted(groups, [group, group + 1])
        return numbers[start:stop]

    def named(self, number: int) -> str:
        """The entry of a change, for messages."""
        cells = {name: plain_values(self.rows.column(name).slice(number, 1).combine_chunks())[0] for name in self.names}
        return ", ".join(f"{name}={value!r:.80}" for name, value in cells.items())

    def refused(self, number: int, why: str) -> InvalidInputError:
        """The error EDIT_REFUSED about a change."""
        return _refusal(self.origin, f"the entry {self.named(number)} {why}")


def unsupported(origin: str, why: str) -> UnsupportedError:
    """The error EDIT_UNSUPPORTED about a state."""
    return UnsupportedError(ErrorCode.EDIT_UNSUPPORTED, f"{origin}: {why}")


def _refusal(origin: str, why: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{origin}: {why}")


def has_positions(form: KeyedForm) -> bool:
    """Return whether an entry is a list, whose elements are rows."""
    return form.kind == "list" and not form.whole


def state_changes(
    edit: StateEdit, form: KeyedForm, key: FlinkType | None, groups: int, columns: pa.Schema, origin: str
) -> StateChanges:
    """The changes that an edit makes to entries.

    ``key`` is the type of keys as stored, ``columns`` are those of the state. Raises UnsupportedError EDIT_UNSUPPORTED
    for values that cannot be written and for new keys whose key group is not known, InvalidInputError EDIT_REFUSED for
    rows that contradict each other.
    """
    schema = pa.schema([each for each in columns if each.name in form.schema.names and each.name not in PLACEMENT])
    names = tuple(name for name in form.row_key if name != POSITION)
    if form.kind == "timers" and TIMESTAMP_MS not in names:
        names = (*names, TIMESTAMP_MS)
    removed, added = (_in_columns(rows, schema, origin) for rows in (edit.removed, edit.added))
    every = pa.concat_tables([removed.select(names), added.select(names)])
    search, number, first = distinct(columns_of(every, names))
    old, new = number[: removed.num_rows], number[removed.num_rows :]
    has_old, has_new = (np.bincount(each, minlength=len(first)) > 0 for each in (old, new))
    writer = EntryWriter(form, key, groups)
    rows = every.take(pa.array(first))
    try:
        waiting = _waiting(form, has_old[new])
        given = _given(writer, added, waiting)
        written = _placed(writer.values(added.filter(pa.array(~waiting))), np.flatnonzero(~waiting), len(new))
        lists: ListChanges | None = None
        if has_positions(form):
            lists = _lists(len(first), (removed, old), (added, new), (written, given), origin)
            values = pa.repeat(pa.scalar(b"", pa.binary()), len(first))
        else:
            for rows_of, numbers in ((removed, old), (added, new)):
                _check_single(rows_of, numbers, names, origin)
            values = _placed(written, new, len(first))
        fresh = np.flatnonzero(~has_old)
        if np.isin(new, fresh).any():
            _check_classes(form)
        keys, group = writer.keys(rows.take(pa.array(fresh)))
    except NotWrittenError as error:
        raise unsupported(origin, str(error)) from error
    except ValueError as error:
        raise _refusal(origin, str(error)) from error
    in_groups = np.full(len(first), -1)
    in_groups[fresh] = group
    return StateChanges(
        form,
        groups,
        origin,
        names,
        rows,
        has_old,
        has_new,
        values,
        lists,
        _placed(keys, fresh, len(first)),
        in_groups,
        search,
        {} if lists is not None else {int(new[row]): value for row, value in given.items()},
    )


def _waiting(form: KeyedForm, is_stored: Bools) -> Bools:
    """A mask of the rows whose bytes follow from those that are stored."""
    return is_stored if form.kind != "timers" and hides(form.element) else np.zeros(len(is_stored), bool)


def _given(writer: EntryWriter, added: pa.Table, waiting: Bools) -> dict[int, Any]:
    """The values of rows that wait for what is stored, by the number of the row."""
    if not waiting.any():
        return {}
    values = plain_values(writer.column(added.filter(pa.array(waiting))))
    return dict(zip(np.flatnonzero(waiting).tolist(), values, strict=True))


def _check_classes(form: KeyedForm) -> None:
    """Refuse new values of a POJO that has subclasses. Raises NotWrittenError."""

    def check(kind: FlinkType) -> FlinkType:
        if isinstance(kind, PojoOf) and (kind.registered or kind.unregistered):
            raise NotWrittenError(
                f"a new value of {kind.class_name} cannot be written, for it has subclasses, and its columns do not "
                "say which one a value is; change values that are there, or use Flink's State Processor API"
            )
        return kind

    replaced(form.element, check)


def _in_columns(rows: pa.Table, schema: pa.Schema, origin: str) -> pa.Table:
    missing = [name for name in schema.names if name not in rows.schema.names]
    if missing:
        raise _refusal(origin, f"the edit's rows have no column {missing[0]}, expected {', '.join(schema.names)}")
    try:
        return in_schema(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
        raise _refusal(origin, f"the edit's rows have other types than the state's: {error}") from error


def _placed(values: pa.BinaryArray, places: Ints, count: int) -> pa.BinaryArray:
    """The values at these places among ``count``, and no bytes at the others."""
    at = np.full(count, -1)
    at[places] = np.arange(len(places))
    return pc.fill_null(values.take(pa.array(at, mask=at < 0)), b"")


def _check_single(rows: pa.Table, numbers: Ints, names: Sequence[str], origin: str) -> None:
    twice: Ints = np.flatnonzero(np.bincount(numbers) > 1)
    if len(twice):
        _refuse_twice(rows, int(np.flatnonzero(numbers == twice[0])[0]), names, origin)


def _refuse_twice(rows: pa.Table, row: int, names: Sequence[str], origin: str) -> NoReturn:
    cells = [f"{name}={plain_values(rows.column(name).slice(row, 1).combine_chunks())[0]!r:.80}" for name in names]
    raise _refusal(origin, f"the edit has two rows {', '.join(cells)}, expected one")


def _lists(
    count: int,
    old: tuple[pa.Table, Ints],
    new: tuple[pa.Table, Ints],
    values: tuple[pa.BinaryArray, Mapping[int, Any]],
    origin: str,
) -> ListChanges:
    try:
        return list_changes(count, old, new, *values)
    except PositionError as error:
        if error.place is not None:
            place = "null, or negative" if error.place < 0 else error.place
            why = f"a row has position {place}; give elements the positions 0, 1, 2 of their list"
            raise _refusal(origin, why) from None
        rows = new[0] if error.is_new else old[0]
        _refuse_twice(rows, error.row, rows.schema.names, origin)


# Masks of changes that were met, as texts: a task answers with them


def mask_texts(masks: Mapping[str, Bools]) -> dict[str, tuple[int, str]]:
    """Return the length and the bits of each mask, which JSON can hold."""
    return {name: (len(mask), base64.b64encode(np.packbits(mask).tobytes()).decode()) for name, mask in masks.items()}


def masks_of(texts: Mapping[str, tuple[int, str]]) -> dict[str, Bools]:
    """Return the masks that `mask_texts` had."""
    packed = {name: (size, np.frombuffer(base64.b64decode(bits), np.uint8)) for name, (size, bits) in texts.items()}
    return {name: np.unpackbits(bits, count=size).astype(bool) for name, (size, bits) in packed.items()}
