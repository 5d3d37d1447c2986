"""Offset files of tasks: Kafka's own, whatever else Kafka accepts, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import CorruptError
from statestore.formats.kafka.directory.task_offsets import decode_offsets


def test_offset_files_of_kafka() -> None:
    for case in encodings("file:checkpoint", "file:position"):
        with named(case):
            if case.get("error"):
                with pytest.raises(CorruptError, match="KAFKA_FILE"):
                    decode_offsets(case["text"])
            else:
                expected = {
                    topic: {int(n): offset for n, offset in found.items()} for topic, found in case["decoded"].items()
                }
                assert decode_offsets(case["text"].encode()) == expected


@pytest.mark.parametrize(
    "text", ["0\r\n1\r\nt 0 5\r\n", "0\n1\nt 0 5", "0\n1\nt \t 0  5 \n", "0\n2\nt 0 5\nt 1 -7\n", "+0\n1\nt 0 +5\n"]
)
def test_whatever_kafka_accepts_is_accepted(text: str) -> None:
    """Other line ends and runs of white space; an offset below 0 that is not -4 counts as absent."""
    assert decode_offsets(text) == {"t": {0: 5}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "0",
        "0\n",
        "x\n0\n",
        "0\nx\n",
        "0\n-1\n",
        " 0\n1\nt 0 5\n",
        "0\n1\n\n",
        "0\n1\nt 0 5\n\n",
        "0\n1\n t 0 5\n",
        "0\n1\nt 0\n",
        "0\n1\nt 0 5 6\n",
        "0\n1\nt x 5\n",
        "0\n1\nt 0 1_0\n",
        "0\n1\nt -1 5\n",
        "0\n1\nt 2147483648 5\n",
        "0\n1\nt 0 9223372036854775808\n",
        "0\n2\nt 0 5\nt 0 5\n",
        "0\n0\nt 0 5\n",
    ],
)
def test_other_texts_are_no_offset_files(text: str) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*s.position: found.*expected"):
        decode_offsets(text, "s.position")


def test_an_offset_file_is_utf_8() -> None:
    assert decode_offsets("0\n1\nté 0 5\n".encode()) == {"té": {0: 5}}
    with pytest.raises(CorruptError, match=r"KAFKA_FILE.*expected UTF-8"):
        decode_offsets(b"0\n1\n\xff 0 5\n")


@few_or_many(30, 100, data=st.binary(max_size=20))
def test_any_bytes_are_an_offset_file_or_refused(data: bytes) -> None:
    try:
        decode_offsets(b"0\n1\n" + data)
    except CorruptError as error:
        assert error.code == "KAFKA_FILE"
