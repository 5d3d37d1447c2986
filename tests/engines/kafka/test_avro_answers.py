"""Avro values of one schema read by another, against Avro's own library, which deserializers for Kafka use.

With RECORD=1 the answers to the first pairs become tests/data/kafka/avro-answers.json.xz, which the fast tests compare.
Release 1.11.4 of the library: 1.12.0 narrows a long to a float where it becomes a double in an array.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.kafka.avro_answers import RECORDED, differences
from support.kafka.avro_pairs import pairs
from support.kafka.running.java_project import class_path
from support.parameters import SHARE

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parent / "resolution"
PAIRS, KEPT = 2000 if SHARE == 1 else 400, 250


@pytest.mark.parametrize("seed", [1, 2])
def test_values_are_those_that_avro_itself_reads(seed: int, tmp_path: Path) -> None:
    path = class_path(PROJECT, tmp_path)
    asked = pairs(PAIRS, seed)
    lines = "".join(json.dumps(pair) + "\n" for pair in asked)
    ran = subprocess.run(["java", "-cp", path, "Resolutions"], input=lines, capture_output=True, text=True, check=True)
    answers: list[Any] = [json.loads(line) for line in ran.stdout.splitlines()]
    found = [(pair, each) for pair, answer in zip(asked, answers, strict=True) for each in differences(pair, answer)]
    assert not found, (len(found), found[0])
    if os.environ.get("RECORD") and seed == 1:
        short = [[each[:1] if len(each) == 1 else each for each in answer] for answer in answers]
        kept = [{**pair, "answers": answer} for pair, answer in zip(asked[:KEPT], short, strict=False)]
        RECORDED.write_bytes(lzma.compress(json.dumps(kept).encode(), preset=9))
