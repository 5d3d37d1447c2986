"""The table by which compiled code finds the row of a key at a moment: addresses of the arrays of opened segments.

It serves reads of single keys, each of which costs a tenth of what it does in Python. To load compiled code takes up to
a second, so it begins after some thousand reads, and after more where the process has not loaded any yet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.lookup.segment_filter import SegmentFilter
from statestore.catalog.reads.lookup.segment_probe import OpenedSegment
from statestore.catalog.reads.lookup.value_readers import column_parts, kept_batches
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded, load_if_it_pays
from statestore.formats.segments.batch_message import PREFIX_BYTES, batch_fields, message_end
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.values.types import TIME

HALF, NOT_FOUND = 1 << 63, -1  # as in `belief_kernels`, which cannot be imported without numba
# Reads of a store before compiled code finds its keys. Were there none, the first 10 reads of a process that has
# loaded compiled code would take 1.2 times as long; without compiled code, each read takes 3.4 times as long.
WARM_READS = 1 << 12
ANSWERS_AT_ONCE = 1 << 7  # in which no other thread runs
# Versions of a key that are read one by one. A scan takes a fiftieth of the time for each, and has to be planned.
MOST_VERSIONS = 2_000
ADDED = (pa.field("valid_from", TIME), pa.field("valid_to", TIME), pa.field(VERSION_COLUMN, pa.int64()))
USUAL_WORDS = 1 << 9  # of 8 bytes, in which the versions of most keys have room
BYTES_A_READ = 128  # as which a read counts in the decision to load compiled code


def reads_pay(reads: int, more: int) -> bool:
    """Return whether compiled code pays after so many reads of a store, ``more`` of them since the last question."""
    if not is_loaded():
        load_if_it_pays(more * BYTES_A_READ)
    return reads >= WARM_READS and is_loaded()


class _Histories(NamedTuple):
    """The metadata of the message of `history_kernels.copy_versions`, and its room for one call at a time."""

    copy: Callable[..., int]
    no_room: int
    schema: pa.Schema
    head: Ints
    places: Ints
    body_bytes: int
    rows: Ints
    regions: Ints


class LookupTable:
    """The table of `belief_kernels.find_row`, and the arrays whose addresses it has.

    ``find`` takes a hash less HALF and a moment. It returns slot << 32 | row of a row of the hash that is valid then,
    NOT_FOUND if there is none, or another negative number if that is unknown. The row may be that of another key, and
    then nothing is known of the key that was asked for.

    ``read`` takes the bytes of a key, its hash and a moment, and returns the answer of `answer_kernels.read_key`. It is
    always False without ``answers``.
    """

    def __init__(
        self,
        found: SegmentFilter,
        metas: Sequence[SegmentMeta | None],
        schemas: tuple[pa.Schema, pa.Schema],
        next_entry: bytes,
    ) -> None:
        """Make the table for the segments in the slots of a filter, none of which is described yet.

        ``schemas`` are those of keys and of values. ``next_entry``: the path that the next entry of the log will have,
        empty where that is not known.
        """
        from statestore.formats.kernels import answer_kernels
        from statestore.formats.kernels import belief_kernels as kernels

        self._kernels = kernels
        self._answer_kernels = answer_kernels
        self._every: Hashes = np.zeros(found.width, np.uint64)
        self._held: list[object] = [found, self._every]
        self._numbers: Ints = np.zeros(kernels.HEAD + len(metas) * kernels.FIELDS, np.int64)
        self._where = _address(self._numbers)
        self._numbers[[kernels.WORDS, kernels.WIDTH, kernels.SHIFT, kernels.EVERY]] = (
            _address(found.view),
            found.width,
            found.shift,
            _address(self._every),
        )
        self.set_every(found.every)
        self.read: Callable[[bytes, int, int], Any] = _unknown
        self._histories: _Histories | None = None
        self._described: dict[int, OpenedSegment] = {}
        self._schema: pa.Schema | None = None  # that the last history of all columns was asked for
        self.answers = self._can_answer(schemas, next_entry)
        fields = self._numbers[kernels.HEAD :].reshape(-1, kernels.FIELDS)
        fields[:, [kernels.FIRST_START, kernels.LAST_END]] = 1, 0  # valid at no moment
        for slot, meta in enumerate(metas):
            if meta is not None and not meta.tombstone:
                fields[slot, [kernels.FIRST_START, kernels.LAST_END]] = meta.min_valid_from, meta.max_valid_to
        self._fields = fields
        self.find: Callable[[int, int], int] = partial(kernels.find_row, self._where)

    def _can_answer(self, schemas: tuple[pa.Schema, pa.Schema], next_entry: bytes) -> bool:
        """Return whether compiled code makes the values of these columns, and describe them for it."""
        kernels, answers = self._kernels, self._answer_kernels
        key_kinds, kinds = (_kinds(answers, schema) for schema in schemas)
        if key_kinds is None or kinds is None or not _has_gil():
            return False
        names = [*schemas[1].names]
        addresses = np.array([*map(id, names)], np.int64)
        path = np.frombuffer(next_entry + b"\0", np.uint8)
        self._held += [names, addresses, key_kinds, kinds, path]
        head = {
            kernels.KEY_KINDS: _address(key_kinds),
            kernels.KEY_COUNT: len(key_kinds),
            kernels.COLUMNS: len(names),
            kernels.KINDS: _address(kinds),
            kernels.NAMES: _address(addresses),
            kernels.NONE: id(None),
            kernels.NEXT_ENTRY: _address(path),
        }
        self._numbers[[*head]] = [*head.values()]
        convert = self._converted = _converted(schemas[1])
        self._read_keys = _entry_point(answers.read_keys, answers.READ_KEYS)
        if next_entry:
            read = partial(_entry_point(answers.read_key, answers.READ_KEY), self._where)
            self.read = read if convert is None else lambda *asked: convert(read(*asked))
        self._fields_of_rows = [*schemas[0], *schemas[1]]
        return True

    def set_every(self, every: int) -> None:
        """Set the slots that a look has to consider for every hash; more than necessary do no harm."""
        self._every[:] = np.frombuffer(every.to_bytes(8 * len(self._every), "little"), np.uint64)

    def find_many(self, hashes: Hashes, moments: Ints) -> Ints:
        """Return what ``find`` returns for each hash and its moment."""
        places = np.empty(len(hashes), np.int64)
        self._kernels.find_rows(self._where, hashes, moments, places)
        return places

    def read_many(self, keys: pa.Array, hashes: Hashes, moment: int) -> list[Any]:
        """Return what ``read`` returns for each key of a column, without a look for a newer commit."""
        answers: list[Any] = []
        found = np.empty(2 * ANSWERS_AT_ONCE, np.int64)
        is_number = pa.types.is_integer(keys.type)
        _, offsets, data = column_parts(keys.cast(pa.int64()) if is_number else keys)
        for first in range(0, len(hashes), ANSWERS_AT_ONCE):
            some = hashes[first : first + ANSWERS_AT_ONCE]
            if is_number:
                self._read_keys(self._where, 0, _address(data) + 8 * first, some, moment, found, answers)
            else:
                self._read_keys(
                    self._where, _address(offsets) + 4 * first, _address(data), some, moment, found, answers
                )
        return answers if self._converted is None else list(map(self._converted, answers))

    def versions(
        self, key: bytes, key_hash: int, window: tuple[int, int], schema: pa.Schema
    ) -> list[pa.RecordBatch] | None:
        """Return the versions of a key in a window of moments, with columns of ``schema``, as one batch.

        They come as in a scan. No batch if there are none; None: compiled code does not know them all, or they are more
        than MOST_VERSIONS.
        """
        made = self._histories or self._made_for_histories()
        words = USUAL_WORDS
        while True:
            message = np.empty(len(made.head) + words, np.int64)
            message[: len(made.head)] = made.head
            count = made.copy(self._where, key, key_hash, *window, made.rows, made.regions, made.places, message)
            if count != made.no_room:
                break
            words = int(message[0]) >> 3
        if count <= 0:
            return [] if count == 0 else None
        used = int(message[made.body_bytes]) >> 3
        data = pa.py_buffer(message[: len(made.head) + used].tobytes())
        if schema is not self._schema and (schema.names, schema.types) == (made.schema.names, made.schema.types):
            self._schema = schema
        if schema is self._schema:
            return [pa.ipc.read_record_batch(data, schema)]
        found = pa.ipc.read_record_batch(data, made.schema)
        columns = [found.column(name) for name in schema.names]
        return [pa.RecordBatch.from_arrays(columns, schema=schema)]

    def _describe_versions(self, slot: int, opened: OpenedSegment) -> None:
        """Describe the versions that wrote the rows of a segment, which only histories need."""
        self._fields[slot][self._kernels.WRITTEN] = _address(opened.written_table())

    def _made_for_histories(self) -> _Histories:
        from statestore.formats.kernels import history_kernels as kernels

        schema = pa.schema([*self._fields_of_rows, *ADDED])
        metadata = pa.RecordBatch.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema).serialize()
        end = message_end(metadata, 0)
        fields = batch_fields(metadata.slice(PREFIX_BYTES, end - PREFIX_BYTES))
        places = np.zeros(kernels.PLACES, np.int64)
        for place, position in (
            (kernels.BODY_BYTES, fields.body_length),
            (kernels.MESSAGE_ROWS, fields.rows),
            (kernels.NODES, fields.nodes),
            (kernels.BUFFERS, fields.buffers),
            (kernels.BODY, end - PREFIX_BYTES),
        ):
            places[place] = PREFIX_BYTES + position >> 3  # flatbuffers have numbers of 8 bytes at multiples of 8
        made = _Histories(
            copy=_entry_point(kernels.copy_versions, kernels.COPY_VERSIONS),
            no_room=kernels.NO_ROOM,
            schema=schema,
            head=np.frombuffer(metadata, np.int64, end >> 3),
            places=places,
            body_bytes=int(places[kernels.BODY_BYTES]),
            rows=np.empty(kernels.ROW_FIELDS * MOST_VERSIONS, np.int64),
            regions=np.empty(kernels.REGION_FIELDS * len(schema), np.int64),
        )
        with kept_batches.lock:
            for slot, opened in self._described.items():
                self._describe_versions(slot, opened)
            self._histories = made
        return made

    def describe(self, slot: int, opened: OpenedSegment, place: int) -> None:
        """Describe the segment in a slot, unless the rows of its hashes are in no order; ``place``: that in the log."""
        kernels, probe = self._kernels, opened.probe
        if opened.tables is None:
            opened.tables = probe.starts.addresses(), probe.ends.addresses()
        starts, ends = opened.tables
        if opened.row_order is None:
            opened.row_order = kernels.order_of_rows(
                np.frombuffer(probe.hashes, np.uint64),
                np.frombuffer(probe.rows, np.uint32),
                _address(starts),
                _address(ends),
            )
        if opened.row_order == kernels.UNSORTED:
            return
        pending, limit = opened.pending, len(opened.closures)
        runs = np.array([(*run, limit) for run in pending.addresses] if limit else [], np.int64)
        self._held += [opened, runs]
        fields = self._fields[slot]
        fields[kernels.ROWS] = _address(probe.rows)
        fields[kernels.DIRECTORY] = _address(probe.directory)
        fields[kernels.BUCKET_SHIFT] = probe.shift
        fields[kernels.ROW_STARTS] = _address(starts)
        fields[kernels.ROW_ENDS] = _address(ends)
        fields[kernels.IS_CHAINED] = opened.row_order == kernels.CHAINED
        fields[kernels.CLOSURE_RUNS] = len(runs)
        fields[kernels.CLOSURE_TABLE] = _address(runs)
        if self.answers:
            fields[kernels.KEYS] = _address(opened.keys.addresses())
            fields[kernels.VALUES] = _address(opened.values.addresses())
            with kept_batches.lock:  # which forked children renew
                self._described[slot] = opened
                if self._histories is not None:
                    self._describe_versions(slot, opened)
            fields[kernels.LEAST_END], fields[kernels.PLACE] = opened.meta.min_valid_to, place
        fields[kernels.HASHES] = _address(probe.hashes)  # at last: from now on other threads may look into it


def _unknown(key: bytes, key_hash: int, moment: int) -> Any:
    return False


def _has_gil() -> bool:
    """Return whether threads of this Python run by turns, on which compiled code relies that makes objects."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _kinds(answers: Any, schema: pa.Schema) -> Ints | None:
    """Return the kinds of columns for `answer_kernels`; None where one of them is nested, or there is no column."""
    kinds = [_kind(answers, kind) for kind in schema.types]
    return np.array(kinds, np.int64) if kinds and None not in kinds else None


def _kind(answers: Any, kind: pa.DataType) -> Any:
    types, bits = pa.types, 8 * number_bytes(kind)
    if types.is_string(kind) or types.is_binary(kind):
        return answers.TEXT if types.is_string(kind) else answers.BINARY
    if types.is_boolean(kind):
        return answers.BOOLEAN
    if types.is_floating(kind):
        return {32: answers.FLOAT32, 64: answers.FLOAT64}.get(bits)
    return {8: answers.INT8, 16: answers.INT16, 32: answers.INT32, 64: answers.INT64, 128: answers.FIXED16}.get(bits)


def _converted(values: pa.Schema) -> Callable[[Any], Any] | None:
    """Return the function that puts values of their types in place of numbers in an answer; None: there are none."""
    backs = [(field.name, back) for field in values if (back := _back(field.type)) is not None]
    if not backs:
        return None
    is_bare = len(values) == 1

    def converted(answer: Any) -> Any:
        if not answer:
            return answer
        value = answer[0]
        if is_bare:
            return answer if value is None else (backs[0][1](value), *answer[1:])
        for name, back in backs:
            if value[name] is not None:
                value[name] = back(value[name])
        return answer

    return converted


def _back(kind: pa.DataType) -> Callable[[Any], Any] | None:
    types = pa.types
    if types.is_decimal128(kind):
        back = as_number(kind).back
        return lambda stored: back(int.from_bytes(stored, "little", signed=True))
    if types.is_date32(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return as_number(kind).back
    return None


def _entry_point(kernel: Any, signature: Any) -> Callable[..., Any]:
    """Return the compiled function for arguments of these types, which are not looked at again in each call."""
    if signature.args not in kernel.overloads:
        kernel.compile(signature)
    return kernel.overloads[signature.args].entry_point  # type: ignore[no-any-return]


def _address(data: Any) -> int:
    return int(np.asarray(data).ctypes.data)
