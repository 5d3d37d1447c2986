"""The lists and broadcast maps of an operator: of which types their elements are, or in which form of a connector.

Sources and sinks keep their splits, writers and committables as bytes. Which connector wrote them is the user's word,
or follows from the bytes where one form alone fits all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.flink.connectors.connector_form import MOST_BYTES, ConnectorForm
from statestore.formats.flink.connectors.kafka_forms import KAFKA_LEGACY, TOPIC_PARTITION
from statestore.formats.flink.connectors.known_forms import FORMS, enumerator_form, form_of_elements
from statestore.formats.flink.serializers.declared import as_flink_writes
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, Opaque, PrimitiveArray, TupleOf
from statestore.formats.flink.serializers.python_types import of_state
from statestore.formats.flink.serializers.subclasses import with_bytes
from statestore.formats.flink.serializers.type_names import KRYO, shown
from statestore.formats.flink.snapshot.handles import InPlace
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.operator_rows import COORDINATOR, OperatorForm, stored_elements
from statestore.formats.flink.streams.state_form import (
    BINARY,
    VALUE,
    Typed,
    is_opaque,
    or_opaque,
)
from statestore.formats.flink.streams.stored_states import StoredElements, StoredStates, merged
from statestore.formats.places.folder import PARALLEL_REQUESTS

_BYTES = PrimitiveArray("byte")
_COORDINATOR_VERSION = (1).to_bytes(4)


def operator_forms(
    stored: StoredStates, *, whole: bool = False, typed: Callable[[str], Typed] = lambda state: Typed({}, state)
) -> list[OperatorForm]:
    """The lists and broadcast maps of all subtasks; ``whole``: with types as they are stored, not as they are shown.

    ``typed`` has the types that the user gave for a state, by its stored name. Raises InvalidInputError FLINK_TYPE.
    """
    lists: dict[str, list[FlinkType]] = {}
    maps: dict[str, list[tuple[FlinkType, FlinkType]]] = {}
    modes: dict[str, str] = {}
    for each in stored.elements:
        for state in each.header.states:
            lists.setdefault(state.name, []).append(state.element)
            modes[state.name] = state.mode
        for broadcast in each.header.broadcasts:
            maps.setdefault(broadcast.name, []).append((broadcast.key, broadcast.value))
    found = []
    for name, kinds in lists.items():
        kind = merged(kinds, f"operator state {name!r}")
        form = OperatorForm(name, modes[name], kind)
        found.append(form if whole else _list_form(form, typed(name)))
    for name, pairs in maps.items():
        what = f"broadcast state {name!r}"
        stored_key, stored_value = (merged(each, what) for each in zip(*pairs, strict=True))
        if not whole:
            stored_key, stored_value = of_state(name, stored_key), of_state(name, stored_value)
        key, value = typed(name).entry(stored_key, stored_value)
        # Nothing tells the entries of such a map apart, so that the whole map is one value.
        opaque = [each for each in (key, value) if is_opaque(each, inside=True)]
        if opaque:
            undivided = or_opaque(opaque[0], inside=True)
            found.append(OperatorForm(name, "broadcast", undivided))
        else:
            found.append(OperatorForm(name, "broadcast", value, key))
    return found


def _list_form(form: OperatorForm, typed: Typed) -> OperatorForm:
    """The form of a list as it is shown, with what the user says of it."""
    text = typed.declared.get(VALUE)
    connector = None if text is None else FORMS.get(text)
    if connector is not None:
        if not _may_be_in(form.value, connector):
            raise InvalidInputError(
                ErrorCode.FLINK_TYPE,
                f"{typed.where}, column {VALUE}: {text!r} is a form of a connector, which does not fit the state's "
                f"type {shown(form.value)}; leave the type out",
            )
        return replace(form, value=_as_bytes(form.value), connector=connector)
    if form.value == _BYTES and text not in (None, BINARY, "bytes"):
        assert text is not None
        try:
            return replace(form, value=as_flink_writes(text), versioned=True)
        except InvalidInputError as error:
            raise InvalidInputError(
                error.code,
                f"{typed.where}, column {VALUE}: {error.message}; the forms of connectors are {', '.join(FORMS)}",
            ) from error
    return replace(form, value=or_opaque(with_bytes(typed.of(VALUE, form.value), typed.subclasses)))


def _may_be_in(kind: FlinkType, connector: ConnectorForm) -> bool:
    return kind == _BYTES if connector.framed else _is_legacy(kind)


def _as_bytes(kind: FlinkType) -> FlinkType:
    return kind if kind == _BYTES else Opaque("", shown(kind))


def _is_legacy(kind: FlinkType) -> bool:
    """Whether elements are partitions of Kafka by Kryo, with an offset each."""
    match kind:
        case TupleOf(fields=(Opaque(serializer=serializer, class_name=name), Basic(name="long"))):
            return serializer == KRYO and name == TOPIC_PARTITION
    return False


def with_connector(form: OperatorForm, stored: StoredStates, files: SnapshotFiles, typed: Typed) -> OperatorForm:
    """The form of a list in which a connector wrote it, if its elements tell; else the form that was given.

    What cannot be read is left to the reads of the state.
    """
    if VALUE in typed.declared or form.key is not None or form.connector is not None:
        return form
    may_be_legacy = form.name in KAFKA_LEGACY.states and all(map(_is_legacy, _stored_types(form.name, stored)))
    if form.value != _BYTES and not may_be_legacy:
        return form
    try:
        found = form_of_elements(form.name, lambda: _elements(form, stored.elements, files))
    except StateStoreError:
        return form
    if found is None or found.framed is not (form.value == _BYTES):
        return form
    return replace(form, value=_as_bytes(form.value), connector=found)


def coordinator_form(operator: OperatorSnapshot) -> OperatorForm | None:
    """The form of the state of an operator's coordinator, if it is the enumerator of a known source."""
    content = enumerator_bytes(operator)
    found = None if content is None else enumerator_form(content)
    return None if found is None else OperatorForm(COORDINATOR, COORDINATOR, _BYTES, connector=found)


def enumerator_bytes(operator: OperatorSnapshot) -> bytes | None:
    """The state of the enumerator of a source, with the version of its serializer and its length.

    Source: ``SourceCoordinator``, which writes a version of its own in front. None where there is no such state.
    """
    handle = operator.coordinator
    if not isinstance(handle, InPlace) or handle.data[:4] != _COORDINATOR_VERSION:
        return None
    return handle.data[4:]


def _stored_types(name: str, stored: StoredStates) -> list[FlinkType]:
    return [each.element for elements in stored.elements for each in elements.header.states if each.name == name]


def _elements(form: OperatorForm, stored: Sequence[StoredElements], files: SnapshotFiles) -> list[bytes]:
    """The elements of all subtasks, none where they are more than a connector writes."""

    def read(each: StoredElements) -> list[bytes] | None:
        with files.open_at(each.handle.stream) as part:
            framed = form.value == _BYTES
            return stored_elements(form.name, part, each.handle, each.header.compressed, MOST_BYTES, framed=framed)

    if files.folder.is_local or len(stored) < 2:
        found = [read(each) for each in stored]
    else:
        with ThreadPoolExecutor(min(len(stored), PARALLEL_REQUESTS)) as pool:
            found = list(pool.map(read, stored))
    whole = [each for each in found if each is not None]
    elements = [element for part in whole for element in part]
    return [] if len(whole) < len(found) or sum(map(len, elements)) > MOST_BYTES else elements
