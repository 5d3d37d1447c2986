"""The command line on a folder of Flink's snapshots: every command that reads, and keys of every form."""

from __future__ import annotations

import json
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.flink.fixtures import fixture, manifest, taken_us, truth

from statestore.formats.values.times import to_datetime


@cache
def folder_of_job() -> str:
    """The folder of the job's snapshots."""
    return str(fixture("rocksdb"))


def true_lines(operator: str, state: str, version: int = 5, run_name: str = "rocksdb") -> list[dict[str, Any]]:
    (file,) = [each["truth"] for each in manifest(run_name)["snapshots"] if each["checkpoint_id"] == version]
    return [line for line in truth(run_name, file) if (line["operator"], line["state"]) == (operator, state)]


def test_inspect_lists_every_state() -> None:
    found = run("inspect", folder_of_job(), "--json")
    assert found.code == 0, found.err
    states = {row["store"] for row in found.rows}
    assert {"kv-long.balance", "kv-long.event_user-timers", "win-tumble.window-contents"} & states
    assert {
        f"{line['operator']}.{line['state'].removeprefix('_timer_state/')}"
        for line in truth("rocksdb", manifest("rocksdb")["snapshots"][-1]["truth"])
    } <= states


@pytest.mark.parametrize("version", [2, 5])
def test_scan_prints_the_rows_of_a_version(version: int) -> None:
    found = run("scan", folder_of_job(), "kv-long.balance", "--version", str(version), "--json")
    rows = {row["key"]: row["value"] for row in found.rows}
    assert rows == {line["key"]: line["value"] for line in true_lines("kv-long", "balance", version)}


def test_scan_as_of_a_moment() -> None:
    found = run("scan", folder_of_job(), "kv-long.balance", "--as-of", to_datetime(taken_us(3)).isoformat(), "--json")
    rows = {row["key"]: row["value"] for row in found.rows}
    assert rows == {line["key"]: line["value"] for line in true_lines("kv-long", "balance", 3)}


def test_a_number_finds_its_row() -> None:
    for line in true_lines("kv-long", "balance")[::10]:
        (row,) = run("get", folder_of_job(), "kv-long.balance", "--json", "--", str(line["key"])).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_text_finds_its_row() -> None:
    for line in true_lines("kv-string", "last")[::10]:
        (row,) = run("get", folder_of_job(), "kv-string.last", "--json", "--", line["key"]).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_tuple_finds_its_rows() -> None:
    for line in true_lines("kv-tuple", "m")[::8]:
        key = {f"f{number}": part for number, part in enumerate(line["key"])}
        rows = run("get", folder_of_job(), "kv-tuple.m", "--json", json.dumps(key)).rows
        assert sorted([row["map_key"], row["map_value"]] for row in rows) == sorted(line["value"]), key
        assert all(row["key"] == key for row in rows), key


def test_a_pojo_finds_its_row() -> None:
    for line in true_lines("kv-pojo", "latest")[::10]:
        (row,) = run("get", folder_of_job(), "kv-pojo.latest", "--json", json.dumps(line["key"])).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_key_that_is_not_there_and_one_of_another_type() -> None:
    assert run("get", folder_of_job(), "kv-long.balance", "123456789").code == 1
    wrong = run("get", folder_of_job(), "kv-long.balance", "abc")
    assert wrong.code == 2 and "WRONG_KEY" in wrong.err


def test_history_changes_diff_and_versions() -> None:
    key = str(true_lines("kv-long", "balance")[0]["key"])
    history = run("history", folder_of_job(), "kv-long.balance", "--json", "--", key).rows
    known = [
        [line["value"] for line in true_lines("kv-long", "balance", version) if str(line["key"]) == key]
        for version in (2, 3, 4, 5)
    ]
    values = [row["value"] for row in history]
    assert values == [now[0] for before, now in pairwise([[], *known]) if now and now != before]
    changes = run("changes", folder_of_job(), "kv-long.balance", "--json").rows
    assert {row["_commit_version"] for row in changes} <= {3, 4, 5}
    diff = run("diff", folder_of_job(), "kv-long.balance", "--from", "2", "--to", "3", "--json").rows
    before, after = (
        {line["key"]: line["value"] for line in true_lines("kv-long", "balance", version)} for version in (2, 3)
    )
    assert {row["key"]["key"] for row in diff} == {
        key for key in {*before, *after} if before.get(key) != after.get(key)
    }
    versions = run("versions", folder_of_job(), "kv-long.balance", "--json").rows
    assert sorted(row["version"] for row in versions) == [2, 3, 4, 5]


def test_sql_reads_states_together() -> None:
    statement = (
        'SELECT count(*) AS n, count(h."value") AS both FROM "kv-long.balance" b LEFT JOIN "kv-long.history" h '
        "USING (key)"
    )
    (row,) = run("sql", folder_of_job(), statement, "--json").rows
    expected = sum(len(line["value"]) for line in true_lines("kv-long", "history"))
    assert row["both"] == expected


def test_compare_two_snapshots_of_a_state() -> None:
    states = {
        each["checkpoint_id"]: fixture("rocksdb") / each["path"] / "kv-long.balance"
        for each in manifest("rocksdb")["snapshots"]
    }
    same = run("compare", states[4], states[5], "--json")
    assert same.code == 0 and same.rows == [], same.err
    other = run("compare", states[2], states[3], "--json")
    assert other.rows


@pytest.mark.slow
def test_a_report_of_a_job(tmp_path: Path) -> None:
    folder = shutil.copytree(fixture("unaligned"), tmp_path / "job")
    found = run("report", folder, "-o", tmp_path / "report.html")
    assert found.code == 0, found.err
    assert "kv-long.balance" in (tmp_path / "report.html").read_text()


def test_several_jobs_are_named_and_one_is_chosen() -> None:
    folder = fixture("upgrade-hashmap")
    refused = run("inspect", folder)
    assert refused.code == 2 and "STATE_SELECTION" in refused.err and "option job" in refused.err
    chosen = run("inspect", folder, "--job", "efdc1f", "--json")
    assert "subscribers.one" in {row["store"] for row in chosen.rows}


def test_names_of_operators_that_a_snapshot_of_flink_1_lacks() -> None:
    folder = fixture("rocksdb-1.20")
    found = run("inspect", folder, "--uids", "kv-long,kv-string", "--json")
    assert {"kv-long.balance", "kv-string.last"} <= {row["store"] for row in found.rows}


# `statestore inspect --compatible-with`: whether a job may be started from a snapshot, as a user sees it

SAVED = "savepoint-855dac-172599e29567"
LATER = "25688f1c0a0a1ac09cbb3141652120ce/chk-5"


def test_a_job_that_may_be_started(tmp_path: Path) -> None:
    found = run(
        "inspect", fixture("upgrade-rocksdb") / SAVED, "--compatible-with", fixture("upgrade-rocksdb") / LATER, "--json"
    )
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
    job.write_text(run("describe", fixture("upgrade-rocksdb") / SAVED).out.replace(named, 'uid = "readers"'))
    found = run("inspect", fixture("upgrade-rocksdb") / SAVED, "--compatible-with", job)
    assert found.code == 1 and "lost" in found.out and "--allowNonRestoredState" in found.out
    assert found.err.splitlines()[-1] == "the restore is refused"


def test_a_file_that_is_no_description_is_wrong_usage(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_bytes(b"\xff\xfe")
    found = run("inspect", fixture("upgrade-rocksdb") / SAVED, "--compatible-with", job)
    assert found.code == 2 and "no text in UTF-8" in found.err


def test_stores_are_not_restored_by_jobs(tmp_path: Path) -> None:
    import statestore

    statestore.connect(tmp_path).create_store("s", kind="versioned", key={"k": "string"}, value={"v": "int"})
    found = run("inspect", tmp_path, "--compatible-with", fixture("upgrade-rocksdb") / SAVED)
    assert found.code == 1 and "UNSUPPORTED_ENGINE" in found.err
