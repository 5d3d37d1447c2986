"""`statestore inspect --compatible-with`: whether a job may be started from a snapshot, as a user sees it."""

from __future__ import annotations

from pathlib import Path

from support.command_line import run
from support.flink.fixtures import fixture

UPGRADE = fixture("upgrade-rocksdb")
SAVED = UPGRADE / "savepoint-855dac-172599e29567"
LATER = UPGRADE / "25688f1c0a0a1ac09cbb3141652120ce" / "chk-5"


def test_a_job_that_may_be_started(tmp_path: Path) -> None:
    found = run("inspect", SAVED, "--compatible-with", LATER, "--json")
    assert found.rows[-1] == {
        "operator": "subscribers",
        "state": "event_user-timers",
        "verdict": "as is",
        "reason": "",
    }
    assert found.err.splitlines() == ["6 as is, 3 after migration"]


def test_a_description_is_edited_and_prevents_the_restore(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    named = 'id = "7fe3cbbac7efc97f58edbdbad23d982d"\nuid = "subscribers"'
    job.write_text(run("describe", SAVED).out.replace(named, 'uid = "readers"'))
    found = run("inspect", SAVED, "--compatible-with", job)
    assert found.code == 1 and "lost" in found.out and "--allowNonRestoredState" in found.out
    assert found.err.splitlines()[-1] == "the restore is refused"


def test_a_file_that_is_no_description_is_wrong_usage(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_bytes(b"\xff\xfe")
    found = run("inspect", SAVED, "--compatible-with", job)
    assert found.code == 2 and "no text in UTF-8" in found.err


def test_stores_are_not_restored_by_jobs(tmp_path: Path) -> None:
    import statestore

    statestore.connect(tmp_path).create_store("s", kind="versioned", key={"k": "string"}, value={"v": "int"})
    found = run("inspect", tmp_path, "--compatible-with", SAVED)
    assert found.code == 1 and "UNSUPPORTED_ENGINE" in found.err
