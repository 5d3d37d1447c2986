"""The columns of values of Kryo, which tell their classes one by one: the types that a sample of them has.

Small states are looked at as a whole. In larger ones a value of another type may come behind the sample; it is refused
where it is read, and a type that a user gives holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.columns.kryo_object_types import JSON as NO_TYPE
from statestore.formats.flink.columns.kryo_object_types import shown_type
from statestore.formats.flink.columns.kryo_survey import taking_notes
from statestore.formats.flink.found_classes import rows_with_classes, with_classes
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.layouts.class_remedies import remedy_for
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.declared import JSON
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf, Opaque, replaced
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.flink.streams.operator_rows import OperatorForm, operator_rows
from statestore.formats.flink.streams.state_form import STORED_BYTES, KeyedForm, is_opaque, or_opaque
from statestore.formats.flink.streams.stored_states import StoredElements, StoredKeyed, StoredTimers
from statestore.formats.flink.suggested_classes import Described, Look, Looked, suggestion

_NO_CODE = JobCode()
ROWS = 1 << 13
"""Rows of a sample."""
_FEW = 1 << 10
"""Rows by which a declaration is tried."""

F = TypeVar("F", KeyedForm, OperatorForm)


def kryo_parts(found: object) -> list[KryoOf]:
    """The parts of Kryo without a column in a type, or in a header or form."""
    parts: list[KryoOf] = []

    def note(kind: FlinkType) -> FlinkType:
        if isinstance(kind, KryoOf) and kind.column is None:
            parts.append(kind)
        return kind

    replaced(found, note)
    return parts


def sampled_form(
    files: SnapshotFiles,
    operator: OperatorSnapshot,
    stored: Sequence[StoredKeyed | StoredTimers],
    header: KeyedStateHeader,
    key: FlinkType,
    made: Callable[[KeyedStateHeader, FlinkType], KeyedForm],
    code: JobCode,
    described: Callable[[], Described],
) -> tuple[KeyedForm, bool]:
    """The form of a keyed state that ``made`` makes of its header and key, with columns for values of Kryo.

    ``stored`` are the subtasks that wrote it in this form, ``code`` has the job's classes, ``described`` those that the
    snapshot describes. The second answer is whether the sample met no file that is missing or damaged: a later one
    would tell the same.
    """
    faults: list[StateStoreError] = []

    def batches(form: KeyedForm) -> Iterator[pa.RecordBatch]:
        at = KeyedAt(
            None, 0, files, operator, form, form.schema, None, operator.max_parallelism,  # type: ignore[arg-type]
            tuple((each, form) for each in stored), "a sample", {}, code,
        )  # fmt: skip
        names = [name for name in form.schema.names if name != STORED_BYTES]
        try:
            for part in at.parts([]):
                yield from at.rows(part, names, [])
        except StateStoreError as error:
            if not isinstance(error, UnsupportedError):
                faults.append(error)
            raise

    found: KeyedForm = _sampled((header, key), lambda parts: made(*parts), batches, code, described)
    return found, not faults


def sampled_elements(
    files: SnapshotFiles,
    stored: Sequence[StoredElements],
    form: OperatorForm,
    code: JobCode,
    described: Callable[[], Described],
) -> OperatorForm:
    """The form of an operator state with columns for values of Kryo; see `sampled_form`."""

    def read(form: OperatorForm, change: Callable[[FlinkType], FlinkType] | None) -> Iterator[pa.RecordBatch]:
        form = form if change is None else replaced(form, change)
        for each in stored:
            with files.open_at(each.handle.stream) as stream:
                yield from operator_rows(
                    form, stream, each.handle, each.subtask, each.header.compressed, form.schema.names, "a sample"
                )

    def batches(form: OperatorForm) -> Iterator[pa.RecordBatch]:
        return rows_with_classes(code, partial(read, form))

    found: OperatorForm = _sampled((form,), lambda parts: _divided(parts[0]), batches, code, described)
    return found


def _divided(form: OperatorForm) -> OperatorForm:
    """The form, whose entries nothing tells apart where they cannot be decoded."""
    if form.key is None:
        return replace(form, value=or_opaque(form.value))
    opaque = next((each for each in (form.key, form.value) if is_opaque(each, inside=True)), None)
    return form if opaque is None else OperatorForm(form.name, form.mode, or_opaque(opaque, inside=True))


def _sampled(
    types: Any,
    make: Callable[[Any], F],
    batches: Callable[[F], Iterator[pa.RecordBatch]],
    code: JobCode = _NO_CODE,
    described: Callable[[], Described] = dict,
) -> F:
    """The form of types in which each part of Kryo has a column, or is opaque."""
    while parts := kryo_parts(types):
        with taking_notes(len(parts)) as (places, notes):
            form = make(_changed(types, _placed, places))
            if not kryo_parts(form):
                return make(types)
            _look(batches(form))
        if not notes.opaque:
            found = [notes.types.get(place, pa.null()) for place in places]
            return make(_changed(types, _with, found))
        opaque = [(place in notes.opaque, notes.opaque.get(place), notes.octets.get(place, b"")) for place in places]
        look = partial(_looked, types, make, batches)
        types = _changed(types, partial(_without, code=code, described=described, look=look), opaque)  # look again
    return make(types)


def _changed(types: Any, change: Callable[[KryoOf, Any], FlinkType], values: Iterable[Any]) -> Any:
    """Types in which each part of Kryo without a column is changed by its own value, in their order."""
    left = iter(values)

    def changed(kind: FlinkType) -> FlinkType:
        return change(kind, next(left)) if isinstance(kind, KryoOf) and kind.column is None else kind

    return replaced(types, changed)


def _placed(kind: KryoOf, place: int) -> FlinkType:
    return replace(kind, place=place)


def _without(
    kind: KryoOf,
    found: tuple[bool, str | None, bytes],
    code: JobCode = _NO_CODE,
    described: Callable[[], Described] = dict,
    look: Look | None = None,
) -> FlinkType:
    """The part with the classes that were found for it, or as opaque bytes, with the class in them that stands in the
    way, unless they are read.
    """
    is_opaque, name, octets = found
    inside = f" with {name}" if name and name != kind.class_name else ""
    if not is_opaque:
        return kind
    known = with_classes(kind, code.used)
    if known != kind:
        return known
    remedy = remedy_for(kind, name)
    if remedy and look is not None:
        remedy = suggestion(Looked(0, False, kind, name, octets), described(), look)
    return Opaque(kind.serializer, f"{kind.class_name}{inside}", remedy=remedy)


def _looked(
    types: Any,
    make: Callable[[Any], F],
    batches: Callable[[F], Iterator[pa.RecordBatch]],
    found: Mapping[str, JobClass],
) -> Looked:
    """Look at a few rows by classes that are tried."""
    tried = replaced(types, partial(with_classes, found=found))
    parts = kryo_parts(types)
    with taking_notes(len(parts)) as (places, notes):
        rows, is_whole = _look(batches(make(_changed(tried, _placed, places))), _FEW)
    if is_whole and rows:
        return Looked(rows, True)
    for part, place in zip(parts, places, strict=True):
        if place in notes.octets:
            is_wrong = place not in notes.opaque
            return Looked(rows, False, part, notes.opaque.get(place), notes.octets[place], is_wrong)
    return Looked(rows, False)


def _with(kind: KryoOf, found: pa.DataType) -> FlinkType:
    return replace(kind, column=JSON if found == NO_TYPE else shown_type(found))


def _look(batches: Iterator[pa.RecordBatch], most: int | None = None) -> tuple[int, bool]:
    """Read rows until there are enough, a sample's unless ``most`` says it, or one that cannot be read: the read of the
    state says why.

    Returns how many were read, and whether there was none such.
    """
    rows = 0
    with closing(batches):  # type: ignore[type-var]
        try:
            for batch in batches:
                rows += batch.num_rows
                if rows >= (ROWS if most is None else most):
                    break
        except StateStoreError:
            return rows, False
    return rows, True
