"""All classes of Flink's jars, by their class files, against Java's reflection."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from support.flink.reflected_classes import differences
from support.flink.running.java_project import PROJECTS, jars_of

from statestore.formats.flink.java_classes.class_file import read_class_file
from statestore.formats.flink.java_classes.job_code import described

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
