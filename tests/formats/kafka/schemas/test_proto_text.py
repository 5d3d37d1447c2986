"""Protobuf schemas as text are the descriptors that protoc makes of them."""

from __future__ import annotations

import base64
import tarfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import DATA

from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.kafka.schemas.proto_text import file_descriptor
from statestore.formats.kafka.schemas.protobuf_schema import message_of, messages_at, parse_message
from statestore.formats.kafka.schemas.well_known_protos import WELL_KNOWN


@pytest.fixture(scope="module")
def protos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files ``three.proto`` and ``two.proto``, and what protoc 3.21 wrote of them and of Google's."""
    folder = tmp_path_factory.mktemp("protos")
    with tarfile.open(DATA / "kafka" / "protos.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "protos"


def files(path: Path) -> dict[str, Any]:
    return {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file}


def bare(file: Any) -> Any:
    """A descriptor without what does not decide how bytes are laid out, and without scopes of names."""
    for name in ("options", "service", "extension", "public_dependency"):
        file.ClearField(name)
    if file.syntax == "proto2":
        file.ClearField("syntax")
    for message in file.message_type:
        _bare_message(message)
    for enum in file.enum_type:
        _bare_enum(enum)
    return file


def _bare_message(message: Any) -> None:
    is_entry = message.options.map_entry
    for name in ("options", "reserved_range", "reserved_name", "extension_range", "extension"):
        message.ClearField(name)
    if is_entry:
        message.options.map_entry = True
    for field in message.field:
        for name in ("options", "json_name", "default_value"):
            field.ClearField(name)
        if field.type_name:
            field.ClearField("type")
            field.type_name = field.type_name.rsplit(".", 1)[-1]
    for nested in message.nested_type:
        _bare_message(nested)
    for enum in message.enum_type:
        _bare_enum(enum)


def _bare_enum(enum: Any) -> None:
    for name in ("options", "reserved_range", "reserved_name"):
        enum.ClearField(name)
    for value in enum.value:
        value.ClearField("options")


@pytest.mark.parametrize("name", ["three.proto", "two.proto"])
def test_a_text_is_what_protoc_makes_of_it(protos: Path, name: str) -> None:
    wanted = files(protos / "three.desc")[name]
    found = descriptor_pb2.FileDescriptorProto.FromString(file_descriptor((protos / name).read_text(), name))
    assert bare(found) == bare(wanted)


def test_types_are_the_ones_that_protoc_finds(protos: Path) -> None:
    """Every message has the same fields by the texts and by the descriptor set, with relative names in both."""
    texts = tuple((protos / name).read_text() for name in ("two.proto", "three.proto"))
    whole = f"base64,{base64.b64encode((protos / 'three.desc').read_bytes()).decode()}"
    names = {name for found in messages_at(texts).values() for name in found}
    assert {"shop.v1.Item", "shop.v1.Item.Part", "shop.v1.Opt.In"} <= names
    for name in names:
        assert message_of(texts, name) == parse_message(f"{whole}#{name}")
    first = base64.b64encode(file_descriptor(texts[0])).decode()
    assert message_of((first, texts[1]), "shop.v1.Item") == message_of(texts, "shop.v1.Item")


def test_files_that_everybody_has_are_those_of_google(protos: Path) -> None:
    found = files(protos / "google.desc")
    ours = {path: text for path, text in WELL_KNOWN.items() if path in found}
    assert len(ours) == 8
    for path, text in ours.items():
        wanted = bare(found[path])
        assert bare(descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(text, path))) == wanted


@pytest.mark.parametrize("path", WELL_KNOWN)
def test_files_that_everybody_has_are_whole(path: str) -> None:
    file = descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(WELL_KNOWN[path], path))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    for message in file.message_type:
        assert message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))


REFUSED: list[Any] = [
    ("message A { repeated group B = 1 { int32 x = 1; } }", UnsupportedError, "line 1: found a group"),
    ("extend A { optional group B = 1 { optional int32 x = 1; } }", UnsupportedError, "a group"),
    ('edition = "2023"; message A {}', UnsupportedError, "an edition"),
    ('syntax = "proto4";', UnsupportedError, "proto4"),
    ("message A { option message_set_wire_format = true; }", UnsupportedError, "message_set_wire_format"),
    ("message M {" * 60, UnsupportedError, "nested deeper"),
    ("\nmessage A { int32 x = 1; }", InvalidInputError, "line 2: .*int32.*expected optional"),
    ("message A { optional int32 x = 08; }", InvalidInputError, "a whole number"),
    ("message A { optional int32 x = 99999999999; }", InvalidInputError, "32 bits"),
    ("message A { optional int32 x = 1 }", InvalidInputError, "';'"),
    ("message A { oneof o { repeated int32 x = 1; } }", InvalidInputError, "without a label"),
    ("message A {", InvalidInputError, "the end"),
    ("message A { option x = { ", InvalidInputError, "the end"),
    ("/* message A {}", InvalidInputError, "line 1"),
    ("{}", InvalidInputError, "a name"),
    ('"x"', InvalidInputError, "a name"),
]


@pytest.mark.parametrize(("text", "error", "found"), REFUSED)
def test_other_texts_are_refused(text: str, error: type[StateStoreError], found: str) -> None:
    with pytest.raises(error, match=rf"Protobuf schema as text.*{found}"):
        file_descriptor(text)


TOKENS = 'message enum oneof map extend option reserved { } [ ] ( ) < > = ; , . - 1 "x" A b int32 optional // /*'


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*TOKENS.split(), "\n"]), max_size=30).map(" ".join))
def test_any_text_is_a_file_or_an_error(text: str) -> None:
    try:
        descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(text))
    except StateStoreError as error:
        assert "Protobuf schema as text" in str(error)
