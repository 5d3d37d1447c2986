"""Connectors' own serializers, and a job from files to files, run anew: their bytes have the rows that were meant."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.connector_truth import WrittenElement, same_order, written
from support.flink.running.java_project import class_path
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.flink.connectors.known_forms import ENUMERATOR_FORMS, STATE_FORMS

pytestmark = pytest.mark.slow

FORMS = {each.name: each for each in (*STATE_FORMS, *ENUMERATOR_FORMS)}
PACKAGES = ("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.io", "java.net", "java.nio")
OPENS = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in (*PACKAGES, "java.text", "java.time")]
ROUNDS = 150
LINES, FILES = 40, 3


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path("connectors", tmp_path_factory.mktemp("programs"), "1.20.3", beside="lines")


def run(programs: str, *words: str) -> None:
    done = subprocess.run(["java", *OPENS, "-cp", programs, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def shown(each: WrittenElement) -> list[dict[str, object]]:
    form = FORMS[each.form]
    columns = zip(*form.rows(each.element, "state"), strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, form.columns, strict=True)]
    return same_order(each.form, pa.RecordBatch.from_arrays(arrays, schema=form.columns).to_pylist())


@pytest.mark.parametrize(
    ("project", "version", "program", "forms"),
    [
        ("connectors", "1.20.3", "SplitBytes", 12),
        ("connectors", "1.20.3", "JdbcSinkBytes", 2),
        ("sources", "1.20.3", "SourceBytes", 5),
        ("kafka-5", "2.2.0", "KafkaFiveBytes", 2),
    ],
)
def test_values_of_every_form_have_the_rows_that_were_meant(
    project: str, version: str, program: str, forms: int, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.jsonl"
    run(class_path(project, tmp_path, version, beside="lines"), program, str(lines), str(ROUNDS), "2026")
    with lines.open() as file:
        elements = list(written(map(json.loads, file)))
    assert len({each.form for each in elements}) == forms and len(elements) >= forms * ROUNDS
    for each in elements:
        expected = same_order(each.form, each.rows)
        found = shown(each) if expected else []
        assert [{name: row[name] for name in known} for row, known in zip(found, expected, strict=True)] == expected


def test_a_job_of_files_leaves_what_it_has_read(programs: str, tmp_path: Path) -> None:
    run(programs, "FilesJob", str(tmp_path))
    source = source_at(tmp_path / "savepoint", {"uids": "files,slowly,sink,numbers,each,rolled"})
    forms = {source.info(name).facts["form"] for name in source.states()}
    expected = {"file_split", "file_enumerator", "sequence_split", "file_writer", "file_committables", "committables"}
    assert forms == expected
    reading = rows_of(source, "files.SourceReaderState").to_pylist()
    assert reading and all(0 <= each["records_after_offset"] <= LINES for each in reading)
    known = rows_of(source, "files.coordinator").to_pylist()
    assert sum(each["state"] == "processed" for each in known) == FILES
    for each in rows_of(source, "sink.writer_raw_states").to_pylist():
        current = each["in_progress"]
        assert Path(current["temporary"]).stat().st_size >= current["bytes"] > 0
