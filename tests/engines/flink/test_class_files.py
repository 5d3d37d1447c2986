"""All classes of Flink's jars, by their class files, against Java's reflection."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.kryo_truth import decoded, kinds
from support.flink.reflected_classes import differences
from support.flink.running.java_project import PROJECTS, jars_of

from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.found_classes import rows_with_classes
from statestore.formats.flink.java_classes.class_file import read_class_file
from statestore.formats.flink.java_classes.job_code import described
from statestore.formats.flink.serializers.flink_types import FlinkType

pytestmark = pytest.mark.slow
MODULES = ("flink-core-2", "flink-runtime-2", "kryo-5")


def test_every_class_of_flink_is_that_of_reflection(tmp_path: Path) -> None:
    """Fields with generic types, constants, flags and variables, of some 8,000 classes."""
    jars = jars_of("jobs", tmp_path / "maven").split(os.pathsep)
    program = tmp_path / "program"
    source = PROJECTS / "classes" / "src" / "PrintClasses.java"
    subprocess.run(["javac", "-d", str(program), str(source)], check=True, capture_output=True)
    fields = enums = unsure = 0
    for module in MODULES:
        jar = next(each for each in jars if Path(each).name.startswith(module) and "tests" not in Path(each).name)
        run = ["java", "-cp", str(program), "PrintClasses", jar, *(each for each in jars if each != jar)]
        lines = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
        truth = {each["name"]: each for each in map(json.loads, lines)}
        with zipfile.ZipFile(jar) as archive:
            files = [read_class_file(archive.read(f"{name.replace('.', '/')}.class"), name) for name in truth]
        assert differences(files, truth) == []
        fields += sum(len(each["fields"]) for each in truth.values())
        enums += sum(each["constants"] not in (None, "failed") for each in truth.values())
        unsure += sum(described(each) is None for each in files)
    assert fields > 8000 and enums > 200 and unsure == 0


ROW = "01006f72672e6170616368652e666c696e6b2e74797065732e526ff7"
RIGHT = "01006f72672e6170616368652e666c696e6b2e74797065732e4569746865722452696768f4"
OBJECTS = {
    ROW + "010001015b4c6a6176612e6c616e672e4f626a656374bb010403018261090200010100": {
        "class": "org.apache.flink.types.Row",
        "fieldByName": None,
        "fieldByPosition": ["a", 1, None],
        "kind": "INSERT",
        "positionByName": None,
    },
    ROW + "0101016a6176612e7574696c2e486173684d61f00103018278090a01827903017768f900010100": {
        "class": "org.apache.flink.types.Row",
        "fieldByName": {"x": 5, "y": "why"},
        "fieldByPosition": None,
        "kind": "INSERT",
        "positionByName": None,
    },
    RIGHT + "01000908": {"class": "org.apache.flink.types.Either$Right", "left": None, "value": 4},
}
"""Bytes by KryoSerializer of Flink 2.1.0 of a row by positions, one by names, and an Either, with their values."""


def test_other_classes_of_flink_are_read_by_its_jar(tmp_path: Path) -> None:
    jars = jars_of("jobs", tmp_path / "maven").split(os.pathsep)
    jar = next(each for each in jars if Path(each).name.startswith(MODULES[0]) and "tests" not in Path(each).name)
    plain, code = kinds("2.1.0")["java.lang.Object"], settings_of({"classes": jar}).code
    for octets, truth in OBJECTS.items():

        def rows(change: Callable[[FlinkType], FlinkType] | None, octets: str = octets) -> Iterator[pa.RecordBatch]:
            kind = plain if change is None else change(plain)
            yield pa.RecordBatch.from_pydict({"value": decoded(kind, [bytes.fromhex(octets)])})

        (batch,) = rows_with_classes(code, rows)
        assert json.loads(batch["value"][0].as_py()) == truth
