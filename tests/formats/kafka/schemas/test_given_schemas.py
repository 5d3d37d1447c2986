"""Schemas by id as options give them: files, folders, and who of them is the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.kafka.avro_answers import decoded, framed
from support.kafka.avro_model import encode

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.schemas.schema_files import shown_serde, with_schema_file


def record(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "int", "default": 0} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


SCHEMAS = {"a": record("x"), "b": record("x", "y"), "c": record("y")}
CELLS = [framed(encode(SCHEMAS["a"], {"x": 1}), 5), framed(encode(SCHEMAS["b"], {"x": 2, "y": 3}), 16)]
BY_A, BY_B = [{"x": 1}, {"x": 2}], [{"x": 1, "y": 0}, {"x": 2, "y": 3}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, schema in SCHEMAS.items():
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, schema in files.items():
        (folder / name).write_text(json.dumps(SCHEMAS[schema]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5=a.avsc,16=b.avsc", BY_B),
        ("16=b.avsc, 5=a.avsc", BY_B),
        ("reader=5,5=a.avsc,16=b.avsc", BY_A),
        ("5=a.avsc,16=b.avsc,reader=c.avsc", [{"y": 0}, {"y": 3}]),
        ("ids", BY_B),
        ("ids/", BY_B),
        ("reader=5,ids", BY_A),
        ("subjects", BY_B),
        ("reader=16,mixed", BY_B),
        ("5=a.avsc,part", BY_B),
    ],
)
def test_values_are_read_by_the_schemas_of_their_ids(text: str, expected: list[Any], folder: Path) -> None:
    """By the highest number, not the last in the order of names."""
    write(folder / "ids", **{"5.avsc": "a", "16.avsc": "b", "README.md": "c"})
    write(folder / "subjects", **{"shop-items-value-5.avsc": "a", "shop-items-value-16.json": "b"})
    write(folder / "mixed", **{"items-5.avsc": "a", "items-16.avsc": "b", "users-99.avsc": "c"})
    write(folder / "part", **{"16.avsc": "b"})
    serde = with_schema_file(f"avro:{text}", "the options", folder)
    assert decoded(serde, [*CELLS]).to_pylist() == expected
    assert with_schema_file(serde, "the options", folder / "elsewhere") == serde


def test_keys_with_windows_have_schemas_by_id(folder: Path) -> None:
    serde = with_schema_file("Time-Windowed<avro:5=a.avsc,16=b.avsc>", "the options", folder)
    keys = [cell + (1000 * place).to_bytes(8, "big") for place, cell in enumerate(CELLS)]
    assert [found["key"] for found in decoded(serde, [*keys]).to_pylist()] == BY_B
    assert shown_serde(serde) == "Time-Windowed<avro:ids 5, 16; reader: schema id 16"


@pytest.mark.parametrize(
    ("serde", "found"),
    [
        ("avro:5=a.avsc,5=b.avsc", "id 5, too large or twice"),
        ("avro:99999999999=a.avsc", "'99999999999=a.avsc'|99999999999=a.avsc"),
        ("avro:5=a.avsc,", "found ''"),
        ("avro:5=none.avsc", "none.avsc"),
        ("avro:5=a.avsc,b.avsc", "'b.avsc', which is no folder"),
        ("avro:reader=7,5=a.avsc", "reader 7, which is none of the ids 5"),
        ("avro:reader=5,reader=5,5=a.avsc", "two readers"),
        ("avro:empty", "no file named by an id"),
        ("avro:mixed", r"several subjects \('items', 'users'\), and no reader=ID"),
        ("avro:twice", "two files of one id"),
        ("avro-plain:5=a.avsc", "avro-plain:.*values without an id"),
    ],
)
def test_what_names_no_schemas_is_refused(serde: str, found: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    write(folder / "mixed", **{"items-5.avsc": "a", "users-99.avsc": "c"})
    write(folder / "twice", **{"items-5.avsc": "a", "5.json": "c"})
    with pytest.raises(InvalidInputError, match=rf"WRONG_SCHEMA.*({found})"):
        with_schema_file(serde, "the options", folder)


def test_an_id_without_a_schema_is_named(folder: Path) -> None:
    serde = with_schema_file("avro:5=a.avsc,7=c.avsc", "the options", folder)
    with pytest.raises(CorruptError, match=r"found schema id 16, expected schema id 5, 7; give the schema of this id"):
        decoded(serde, [*CELLS])
