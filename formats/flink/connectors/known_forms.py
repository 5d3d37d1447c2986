"""All forms of connectors by their names, and the one form that the elements of a state are in.

Nothing in a snapshot says which connector wrote a state. A form is taken where all elements of a state are in it, to
the last byte, and in no other: the state is bytes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statestore.formats.flink.connectors.committable_forms import (
    COMMITTABLES,
    FILE_COMMITTABLES,
    ICEBERG_COMMITTABLES,
    JDBC_COMMITTABLES,
    KAFKA_COMMITTABLES,
)
from statestore.formats.flink.connectors.connector_form import ConnectorForm
from statestore.formats.flink.connectors.database_forms import CDC_SPLIT, JDBC_SPLIT, MONGO_ENUMERATOR, MONGO_SPLIT
from statestore.formats.flink.connectors.file_forms import FILE_ENUMERATOR, FILE_SPLIT, FILE_WRITER
from statestore.formats.flink.connectors.kafka_forms import (
    DYNAMIC_KAFKA_SPLIT,
    KAFKA_ENUMERATOR,
    KAFKA_LEGACY,
    KAFKA_SPLIT,
    KAFKA_WRITER,
)
from statestore.formats.flink.connectors.lake_forms import ICEBERG_ENUMERATOR, ICEBERG_SPLIT, PAIMON_SPLIT
from statestore.formats.flink.connectors.shard_forms import (
    DYNAMODB_ENUMERATOR,
    DYNAMODB_SPLIT,
    KINESIS_ENUMERATOR,
    KINESIS_SPLIT,
)
from statestore.formats.flink.connectors.source_forms import (
    HYBRID_ENUMERATOR,
    HYBRID_FILE,
    HYBRID_KAFKA,
    HYBRID_SPLIT,
    PULSAR_SPLIT,
    SEQUENCE_ENUMERATOR,
    SEQUENCE_SPLIT,
)
from statestore.formats.flink.connectors.transaction_forms import JDBC_WRITER, has_transactions

STATE_FORMS = (
    KAFKA_SPLIT,
    DYNAMIC_KAFKA_SPLIT,
    FILE_SPLIT,
    SEQUENCE_SPLIT,
    HYBRID_KAFKA,
    HYBRID_FILE,
    HYBRID_SPLIT,
    JDBC_SPLIT,
    MONGO_SPLIT,
    CDC_SPLIT,
    PULSAR_SPLIT,
    KINESIS_SPLIT,
    DYNAMODB_SPLIT,
    ICEBERG_SPLIT,
    PAIMON_SPLIT,
    KAFKA_WRITER,
    FILE_WRITER,
    JDBC_WRITER,
    KAFKA_COMMITTABLES,
    FILE_COMMITTABLES,
    ICEBERG_COMMITTABLES,
    JDBC_COMMITTABLES,
    COMMITTABLES,
    KAFKA_LEGACY,
)
ENUMERATOR_FORMS = (
    KAFKA_ENUMERATOR,
    FILE_ENUMERATOR,
    SEQUENCE_ENUMERATOR,
    HYBRID_ENUMERATOR,
    KINESIS_ENUMERATOR,
    DYNAMODB_ENUMERATOR,
    MONGO_ENUMERATOR,
    ICEBERG_ENUMERATOR,
)
FORMS = {each.name: each for each in STATE_FORMS}

_GENERAL = (COMMITTABLES, HYBRID_SPLIT)
"""Forms that show a part as bytes. One that knows this part is taken before them; several are where it is empty."""


def form_of_elements(state: str, read: Callable[[], Sequence[bytes]]) -> ConnectorForm | None:
    """The form of the elements of a state that Flink calls so, None where none or several fit.

    Elements are read if the state's name is one of those under which connectors write.
    """
    forms = [each for each in STATE_FORMS if state in each.states]
    elements = read() if forms else ()
    if not elements:
        return None
    return _only([each for each in forms if each.fits(elements)], elements)


def enumerator_form(content: bytes) -> ConnectorForm | None:
    """The form of an enumerator's state, behind the head of its coordinator; None where none or several fit."""
    return _only([each for each in ENUMERATOR_FORMS if each.fits([content])], [content])


def _only(fitting: Sequence[ConnectorForm], elements: Sequence[bytes]) -> ConnectorForm | None:
    special = [each for each in fitting if each not in _GENERAL]
    found = special if len(special) == 1 else [each for each in fitting if each in _GENERAL]
    if len(found) != 1 or _is_doubtful(found[0], elements):
        return None
    return found[0]


def _is_doubtful(form: ConnectorForm, elements: Sequence[bytes]) -> bool:
    """Return whether many bytes are in a form, so that only a user's word counts: a text alone, and only zeros."""
    if form is KAFKA_WRITER:
        return any(each[:4] == b"\0\0\0\1" for each in elements)
    return form is JDBC_WRITER and not any(map(has_transactions, elements))
