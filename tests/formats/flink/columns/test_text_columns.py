"""Texts as Java's ``DataOutput.writeUTF`` writes them, compiled or not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.flink.value_model import decoded, encoded, in_each_way, int32, int64
from support.parameters import named

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.flink_types import Basic, ListOf, MapOf, TupleOf
from statestore.formats.flink.serializers.type_names import shown

UTF, LONG = Basic("utf"), Basic("long")
WRITTEN_BY_JAVA = {
    "0000": "",
    "0003455552": "EUR",
    "0004e282ac2c": "€,",
    "000461c08062": "a\0b",
    "0008eda0bdedb880c3a9": "😀é",
    "000bdfbfe0a080efbfbfc2807f": "\u07ff\u0800\uffff\u0080\u007f",
    "0006edafbfedbfbf": "\U0010ffff",
}
HIGH_ALONE, LOW_FIRST = "0003eda0bd", "000878edb880eda0bd79"  # also written by Java
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


@pytest.mark.usefixtures("each_way")
def test_bytes_of_java_are_its_texts() -> None:
    assert decoded(UTF, *map(bytes.fromhex, WRITTEN_BY_JAVA)) == list(WRITTEN_BY_JAVA.values())
    for octets, text in WRITTEN_BY_JAVA.items():
        assert decoded(UTF, bytes.fromhex(octets)) == [text]


@given(st.lists(TEXTS, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_all_texts_come_back(texts: list[str]) -> None:
    assert decoded(UTF, *(encoded(UTF, each) for each in texts)) == texts
    assert decoded(ListOf(UTF), encoded(ListOf(UTF), texts)) == [texts]


@pytest.mark.usefixtures("each_way")
def test_texts_may_stand_in_any_type() -> None:
    kind = TupleOf((LONG, UTF, ListOf(UTF), MapOf(UTF, LONG)))
    row = {"f0": 5, "f1": "€,", "f2": ["", "😀", ""], "f3": [("\0", 7), ("k", None)]}
    assert decoded(kind, encoded(kind, row), encoded(kind, row)) == [row, row]
    assert decoded(ListOf(UTF), int32(3) + bytes(6)) == [["", "", ""]]


@pytest.mark.usefixtures("each_way")
def test_a_text_may_have_all_bytes_that_its_length_can_say() -> None:
    assert decoded(UTF, b"\xff\xff" + b"n" * 65_535) == ["n" * 65_535]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(("octets", "unit"), [(HIGH_ALONE, "d83d"), (LOW_FIRST, "de00")])
def test_a_lone_surrogate_is_refused_by_name(octets: str, unit: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"FLINK_UNSUPPORTED.*lone surrogate {unit}.*in bytes {octets};.*or none"
    ):
        decoded(UTF, b"\0\1n", bytes.fromhex(octets), b"\0\1n")


@pytest.mark.usefixtures("each_way")
def test_surrogates_of_two_texts_are_no_pair() -> None:
    with pytest.raises(UnsupportedError, match="lone surrogate d83d"):
        decoded(UTF, bytes.fromhex("0003eda0bd"), bytes.fromhex("0003edb880"))


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("beside", ["", "c080"], ids=["", "beside-nul"])
def test_bytes_that_java_does_not_write_are_refused(beside: str) -> None:
    for octets in [
        "80",
        "c3",
        "e282",
        "c3c3",
        "f09f9880",
        "ff",
        "c181",
        "e08080",
        "e0a0",
        "eda0",
        "c2e282ac",
        "e2828282",
    ]:
        raw = bytes.fromhex(beside + octets)
        bad = len(raw).to_bytes(2, "big") + raw
        with named(octets), pytest.raises(CorruptError, match=rf"FLINK_ROW.*UTF-8.*in bytes {bad.hex()};"):
            decoded(UTF, b"\0\1n", bad, b"\0\1n")


@pytest.mark.usefixtures("each_way")
def test_a_character_does_not_reach_into_the_next_text() -> None:
    nul = bytes.fromhex("0002c080")
    for first, second in (("0001c3", "0001a9"), ("0002eda0", "0004bdedb880")):
        with pytest.raises(CorruptError, match="FLINK_ROW"):
            decoded(UTF, nul, bytes.fromhex(first), bytes.fromhex(second))


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\2n", b"\0\1nm", b"\xff\xff"])
def test_a_length_that_does_not_fit_is_refused(raw: bytes) -> None:
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(UTF, b"\0\1n", raw)


@pytest.mark.usefixtures("each_way")
def test_a_count_of_more_texts_than_bytes_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        decoded(ListOf(UTF), int32(2**31 - 1) + int64(0))


def test_the_name_for_people() -> None:
    assert shown(ListOf(UTF)) == "list(utf)"
