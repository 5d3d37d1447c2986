"""Headers with serializers of a user, whose snapshots have no length: read past, or refused, never wrongly read."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import strategies as st
from support.flink.metadata_bytes import i32, utf
from support.flink.snapshot_bytes import (
    INT,
    LONG,
    STRING,
    VERSIONS,
    composite,
    header,
    listed,
    mapped,
    printed,
    snapshot,
    state,
    tupled,
)
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.backend_header import (
    BackendHeader,
    BroadcastHeader,
    OperatorHeader,
    OperatorStateHeader,
    read_backend_header,
    read_operator_header,
)
from statestore.formats.flink.serializers.flink_types import Basic, ListOf, MapOf, Opaque
from statestore.formats.flink.serializers.type_names import shown

OWN = snapshot("com.x.OwnSerializer$Snapshot")
OPAQUE = Opaque("com.x.OwnSerializer$Snapshot")


def read(data: bytes) -> BackendHeader:
    return read_backend_header(data, "file", len(data))


def types(found: BackendHeader) -> dict[str, str]:
    return {each.name: shown(each.value).replace(" (not decoded)", "") for each in found.states}


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_of_flink_with_serializers_of_a_user(version: str) -> None:
    heads = {name: data for (kind, name), (_, data) in printed(version).items() if kind == "HEAD"}
    empty, body = "BackendHeaders$Mine$Empty", "BackendHeaders$Body"
    found = read(heads["empty-custom"])
    assert found.key == Opaque(empty)
    assert types(found) == {"a": empty, "b": f"list({empty})", "c": f"map({empty}, {empty})", "d": "string"}
    assert types(read(heads["body-custom"])) == {"a": "long", "b": body, "c": f"map({body}, long)", "d": "string"}
    assert types(read(heads["many-custom"])) == {f"state-{number}": body for number in range(12)}
    assert types(read(heads["last-custom"])) == {"a": body}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_operator_header_of_flink_with_serializers_of_a_user(version: str) -> None:
    data = printed(version)["HEAD", "operator"][1]
    found = read_operator_header(data, "file", len(data))
    assert (found.version, found.compressed, found.end) == (6, True, len(data))
    compressed = data + b"\xff\x06\0\0sNaPpY"  # what stands before the elements of compressed state
    assert read_operator_header(compressed, "file", len(compressed)) == found
    offsets, buffer = found.states
    assert (offsets.name, offsets.mode, shown(offsets.element)) == ("offsets", "union", "tuple(string, long)")
    assert buffer == OperatorStateHeader("buffer", "split", Opaque("BackendHeaders$Mine$Empty"))
    assert found.broadcasts == (BroadcastHeader("rules", "broadcast", Basic("string"), Opaque("BackendHeaders$Body")),)


def test_an_operator_without_state_in_a_merged_file_has_no_bytes() -> None:
    assert read_operator_header(b"", "file", 0) == OperatorHeader(6, False, (), (), 0)
    with pytest.raises(CorruptError, match="FLINK_METADATA"):
        read_operator_header(b"", "file", None)


@pytest.mark.parametrize("own_key", [True, False])
def test_an_empty_snapshot_is_read_past_wherever_it_stands(own_key: bool) -> None:
    key = OWN if own_key else STRING
    states = [state("a", OWN), state("b", listed(OWN), "LIST"), state("c", mapped(OWN, LONG), "MAP"), state("d", INT)]
    found = read(header(key, *states))
    assert found.key == (OPAQUE if own_key else Basic("string"))
    assert [each.value for each in found.states] == [
        OPAQUE,
        ListOf(OPAQUE),
        MapOf(OPAQUE, Basic("long")),
        Basic("int"),
    ]


def test_a_namespace_may_have_a_users_serializer() -> None:
    assert read(header(STRING, state("a", LONG, namespace=OWN), state("b", LONG))).states[0].namespace == OPAQUE


def test_without_a_known_end_the_class_and_the_states_before_are_named() -> None:
    data = header(STRING, state("first", LONG), state("second", OWN))
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*com\.x\.OwnSerializer.*version 3.*'first'"):
        read_backend_header(data, "file", None)


def test_two_lengths_that_fit_are_refused() -> None:
    """A map of a user's key, whose snapshot may be empty and followed by another class, or hold that class's name."""
    inner = snapshot("com.x.Other", 5, LONG)
    body = b""
    data = header(STRING, state("m", mapped(OWN + body, inner), "MAP"))
    with pytest.raises(UnsupportedError, match="more than one length of its snapshot fits"):
        read(data)


def test_a_body_that_nothing_fits_is_refused() -> None:
    good = header(STRING, state("a", OWN), state("b", LONG))
    with pytest.raises(UnsupportedError, match="no length of its snapshot fits"):
        read_backend_header(good + b"more", "file", len(good) + 4)


def test_the_work_is_bounded() -> None:
    """Thousands of states that may begin at many bytes."""
    trap = b"\0\0" * 30_000
    data = header(STRING, *(state(f"s{number}", OWN) for number in range(50))) + trap
    with pytest.raises(UnsupportedError, match="FLINK_UNSUPPORTED"):
        read_backend_header(data, "file", len(data))


def test_many_states_take_memory_in_proportion() -> None:
    data = header(OWN, *(state(f"s{number}", LONG) for number in range(1000)))
    tracemalloc.start()
    found = read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.states) == 1000
    assert peak < 30 * len(data)


BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda text, number: utf(text) + i32(number), st.sampled_from(["com.x.Some", "mode", ""]), st.integers(0, 9)
    ),
    st.builds(lambda part: i32(1333245, 1, 1) + part, st.sampled_from([LONG, STRING, OWN])),
)
INSIDE = st.sampled_from(["value", "list", "map key", "map value", "tuple"])


@few_or_many(30, 200, BODIES, INSIDE, BODIES)
def test_a_header_is_read_right_or_refused(body: bytes, inside: str, key_body: bytes) -> None:
    own = snapshot("com.x.OwnSnapshot", 4, body)
    opaque = "com.x.OwnSnapshot"
    value, expected = {
        "value": (own, opaque),
        "list": (listed(own), f"list({opaque})"),
        "map key": (mapped(own, LONG), f"map({opaque}, long)"),
        "map value": (mapped(LONG, own), f"map(long, {opaque})"),
        "tuple": (tupled(own, LONG, own), f"tuple({opaque}, long, {opaque})"),
    }[inside]
    key = snapshot("com.x.KeySnapshot", 2, key_body)
    data = header(key, state("a", value), state("b", composite_list(STRING)))
    try:
        found = read(data)
    except UnsupportedError:
        return
    assert found.key == Opaque("com.x.KeySnapshot")
    assert types(found) == {"a": expected, "b": "list(string)"}


def composite_list(element: bytes) -> bytes:
    return composite("org.apache.flink.runtime.state.ArrayListSerializerSnapshot", element)
