"""Bytes that connectors' own serializers wrote, against the values that they stand for."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from support.flink.connector_truth import WrittenElement, recorded, same_order

from statestore.formats.errors import CorruptError
from statestore.formats.flink.connectors.connector_form import ConnectorForm
from statestore.formats.flink.connectors.kafka_forms import KAFKA_ENUMERATOR, KAFKA_SPLIT
from statestore.formats.flink.connectors.known_forms import (
    ENUMERATOR_FORMS,
    FORMS,
    STATE_FORMS,
    enumerator_form,
    form_of_elements,
)

ALL = {each.name: each for each in (*STATE_FORMS, *ENUMERATOR_FORMS)}
WRITTEN = sorted({each.form for each in recorded()})


def elements(form: str) -> list[WrittenElement]:
    return [each for each in recorded() if each.form == form]


def shown(form: ConnectorForm, element: bytes) -> list[dict[str, object]]:
    columns = zip(*form.rows(element, "state"), strict=True)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, form.columns, strict=True)]
    rows: list[dict[str, object]] = pa.RecordBatch.from_arrays(arrays, schema=form.columns).to_pylist()
    return rows


def test_the_recorded_elements_are_of_many_forms() -> None:
    assert len(recorded()) > 200 and len(WRITTEN) == 26


@pytest.mark.parametrize("name", WRITTEN)
def test_an_element_has_the_rows_of_the_value_that_was_written(name: str) -> None:
    for each in elements(name):
        found = same_order(name, shown(ALL[name], each.element))
        if not each.rows:
            assert len(found) == 1 and all(cell is None for cell in found[0].values())
            continue
        expected = same_order(name, each.rows)
        assert [{column: row[column] for column in known} for row, known in zip(found, expected, strict=True)] == (
            expected
        )


@pytest.mark.parametrize("name", WRITTEN)
def test_one_form_alone_is_found_for_the_elements_of_a_state(name: str) -> None:
    found = [each.element for each in elements(name)]
    form = ALL[name]
    if form in ENUMERATOR_FORMS:
        assert all(enumerator_form(each) is form for each in found)
        return
    if name == "kafka_writer":  # a text alone may be anything
        assert form_of_elements(form.states[0], lambda: found) is None
        found = [each for each in found if each[:4] == bytes((0, 0, 0, 2))]
    assert form_of_elements(form.states[0], lambda: found) is form
    assert form_of_elements("mine", lambda: pytest.fail("elements of a job's own state were read")) is None


def test_writers_of_jdbc_without_transactions_may_be_of_any_connector() -> None:
    """Their states are zeros; one writer with a transaction tells."""
    empty = [bytes.fromhex("000000020000000a00000000000000000000")]  # as JdbcWriterStateSerializer writes it
    assert form_of_elements("writer_raw_states", lambda: empty) is None
    full = next(each.element for each in elements("jdbc_writer") if each.rows)
    assert form_of_elements("writer_raw_states", lambda: [*empty, full]) is FORMS["jdbc_writer"]


def test_bytes_behind_what_jdbc_wrote_are_the_zeros_of_its_buffer() -> None:
    element = next(each.element for each in elements("jdbc_writer") if each.rows)

    def behind(rest: bytes) -> bytes:
        return element[:4] + (len(element) - 8 + len(rest)).to_bytes(4, "big") + element[8:] + rest

    assert FORMS["jdbc_writer"].rows(behind(bytes(40)), "state") == FORMS["jdbc_writer"].rows(element, "state")
    for rest in (b"\0\1", bytes(400)):
        with pytest.raises(CorruptError, match="expected the zeros of its buffer"):
            FORMS["jdbc_writer"].rows(behind(rest), "state")


def test_elements_of_which_one_is_in_another_form_are_bytes() -> None:
    mixed = [elements("kafka_split")[0].element, elements("file_split")[0].element]
    assert form_of_elements("SourceReaderState", lambda: mixed) is None


def test_splits_of_an_unknown_source_in_a_hybrid_one_are_shown_as_bytes() -> None:
    mixed = [elements(name)[0].element for name in ("hybrid_kafka_split", "hybrid_file_split")]
    assert form_of_elements("SourceReaderState", lambda: mixed) is FORMS["hybrid_split"]


def test_committables_of_which_none_is_there_are_those_of_any_sink() -> None:
    empty = [each.element for each in elements("kafka_committables") if all("epoch" not in row for row in each.rows)]
    assert form_of_elements("streaming_committer_raw_states", lambda: empty) is FORMS["committables"]


def test_the_first_enumerator_of_kafka_has_splits_by_subtask() -> None:
    def split(topic: bytes, partition: int, offset: int) -> bytes:
        found = len(topic).to_bytes(2) + topic + partition.to_bytes(4) + offset.to_bytes(8) + b"\x80" + bytes(7)
        return len(found).to_bytes(4) + found

    of_one = bytes(4) + (2).to_bytes(4) + split(b"orders", 0, 33) + split(b"orders", 2, 167)
    of_other = (1).to_bytes(4) + bytes(4)
    content = (2).to_bytes(4) + bytes(4) + of_one + of_other
    element = bytes(4) + len(content).to_bytes(4) + content
    form = enumerator_form(element)
    assert form is KAFKA_ENUMERATOR
    assert [(row["partition"], row["offset"], row["assignment"]) for row in shown(form, element)] == [
        (0, 33, "assigned"),
        (2, 167, "assigned"),
    ]


def test_a_split_that_a_dynamic_source_keeps_for_a_while_says_until_when() -> None:
    content = b"\0\1c" + b"\1" + (1_767_225_600_000).to_bytes(8) + bytes(4)
    content += b"\0\1t" + bytes(4) + (7).to_bytes(8) + b"\x80" + bytes(7)
    element = (2).to_bytes(4) + len(content).to_bytes(4) + content
    form = form_of_elements("SourceReaderState", lambda: [element])
    assert form is FORMS["dynamic_kafka_split"]
    (row,) = shown(form, element)
    assert (row["cluster"], str(row["retained_until"]), row["offset"]) == ("c", "2026-01-01 00:00:00+00:00", 7)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 50_000, b'{"a": "\\ud83d"}', b"1" * 5000, b'{"a": 1}'])
def test_a_position_that_is_no_document_of_texts_is_refused(text: bytes) -> None:
    content = (2).to_bytes(4) + b"\0\1s" + bytes(2) + b"\1" + len(text).to_bytes(4) + text + bytes(14)
    with pytest.raises(CorruptError, match="found a position"):
        FORMS["cdc_split"].rows((4).to_bytes(4) + len(content).to_bytes(4) + content, "state")


@pytest.mark.parametrize(
    ("partition", "start", "stop"), [(-1, 0, -3), (0, -4, -3), (0, 0, -2), (0, 0, -4), (0, -(1 << 63), 0)]
)
def test_a_split_that_kafka_cannot_have_is_refused(partition: int, start: int, stop: int) -> None:
    content = b"\0\1t" + partition.to_bytes(4, signed=True) + start.to_bytes(8, signed=True)
    content += stop.to_bytes(8, signed=True)
    element = bytes(4) + len(content).to_bytes(4) + content
    with pytest.raises(CorruptError, match="expected"):
        KAFKA_SPLIT.rows(element, "state")


@pytest.mark.parametrize("name", WRITTEN)
def test_damaged_bytes_have_rows_or_are_refused(name: str) -> None:
    """Truncated ones are never taken for whole ones."""
    chance = random.Random(name)
    for each in elements(name)[:6]:
        for stop in {chance.randrange(len(each.element)) for _ in range(12)}:
            with pytest.raises(CorruptError, match="state: at byte"):
                ALL[name].rows(each.element[:stop], "state")
        with pytest.raises(CorruptError, match="expected the end"):
            ALL[name].rows(each.element + b"\0", "state")
        for _ in range(40):
            damaged = bytearray(each.element)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            try:
                shown(ALL[name], bytes(damaged))
            except CorruptError as error:
                assert error.code == "FLINK_ROW"


def test_random_bytes_are_in_no_form() -> None:
    chance = random.Random(5)
    for _ in range(300):
        element = chance.randbytes(chance.randrange(60))
        framed = bytes(3) + bytes((chance.randrange(3),)) + len(element).to_bytes(4) + element
        for form in (*STATE_FORMS, *ENUMERATOR_FORMS):
            assert not form.fits([framed]) and not form.fits([element])
