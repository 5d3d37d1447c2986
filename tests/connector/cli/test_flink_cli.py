"""The command line on a folder of Flink's snapshots: every command that reads, and keys of every form."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.flink.fixtures import fixture, manifest, taken_us, truth

from statestore.formats.values.times import to_datetime

JOB = str(fixture("rocksdb"))


def true_lines(operator: str, state: str, version: int = 5, run_name: str = "rocksdb") -> list[dict[str, Any]]:
    (file,) = [each["truth"] for each in manifest(run_name)["snapshots"] if each["checkpoint_id"] == version]
    return [line for line in truth(run_name, file) if (line["operator"], line["state"]) == (operator, state)]


def test_inspect_lists_every_state() -> None:
    found = run("inspect", JOB, "--json")
    assert found.code == 0, found.err
    states = {row["store"] for row in found.rows}
    assert {"kv-long.balance", "kv-long.event_user-timers", "win-tumble.window-contents"} & states
    assert {
        f"{line['operator']}.{line['state'].removeprefix('_timer_state/')}"
        for line in truth("rocksdb", manifest("rocksdb")["snapshots"][-1]["truth"])
    } <= states


@pytest.mark.parametrize("version", [2, 5])
def test_scan_prints_the_rows_of_a_version(version: int) -> None:
    found = run("scan", JOB, "kv-long.balance", "--version", str(version), "--json")
    rows = {row["key"]: row["value"] for row in found.rows}
    assert rows == {line["key"]: line["value"] for line in true_lines("kv-long", "balance", version)}


def test_scan_as_of_a_moment() -> None:
    found = run("scan", JOB, "kv-long.balance", "--as-of", to_datetime(taken_us(3)).isoformat(), "--json")
    rows = {row["key"]: row["value"] for row in found.rows}
    assert rows == {line["key"]: line["value"] for line in true_lines("kv-long", "balance", 3)}


def test_a_number_finds_its_row() -> None:
    for line in true_lines("kv-long", "balance")[::4]:
        (row,) = run("get", JOB, "kv-long.balance", "--json", "--", str(line["key"])).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_text_finds_its_row() -> None:
    for line in true_lines("kv-string", "last")[::3]:
        (row,) = run("get", JOB, "kv-string.last", "--json", "--", line["key"]).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_tuple_finds_its_rows() -> None:
    for line in true_lines("kv-tuple", "m")[::2]:
        key = {f"f{number}": part for number, part in enumerate(line["key"])}
        rows = run("get", JOB, "kv-tuple.m", "--json", json.dumps(key)).rows
        assert sorted([row["map_key"], row["map_value"]] for row in rows) == sorted(line["value"]), key
        assert all(row["key"] == key for row in rows), key


def test_a_pojo_finds_its_row() -> None:
    for line in true_lines("kv-pojo", "latest")[::3]:
        (row,) = run("get", JOB, "kv-pojo.latest", "--json", json.dumps(line["key"])).rows
        assert (row["key"], row["value"]) == (line["key"], line["value"])


def test_a_key_that_is_not_there_and_one_of_another_type() -> None:
    assert run("get", JOB, "kv-long.balance", "123456789").code == 1
    wrong = run("get", JOB, "kv-long.balance", "abc")
    assert wrong.code == 2 and "WRONG_KEY" in wrong.err


def test_history_changes_diff_and_versions() -> None:
    key = str(true_lines("kv-long", "balance")[0]["key"])
    history = run("history", JOB, "kv-long.balance", "--json", "--", key).rows
    known = [
        [line["value"] for line in true_lines("kv-long", "balance", version) if str(line["key"]) == key]
        for version in (2, 3, 4, 5)
    ]
    values = [row["value"] for row in history]
    assert values == [now[0] for before, now in pairwise([[], *known]) if now and now != before]
    changes = run("changes", JOB, "kv-long.balance", "--json").rows
    assert {row["_commit_version"] for row in changes} <= {3, 4, 5}
    diff = run("diff", JOB, "kv-long.balance", "--from", "2", "--to", "3", "--json").rows
    before, after = (
        {line["key"]: line["value"] for line in true_lines("kv-long", "balance", version)} for version in (2, 3)
    )
    assert {row["key"]["key"] for row in diff} == {
        key for key in {*before, *after} if before.get(key) != after.get(key)
    }
    versions = run("versions", JOB, "kv-long.balance", "--json").rows
    assert sorted(row["version"] for row in versions) == [2, 3, 4, 5]


def test_sql_reads_states_together() -> None:
    statement = (
        'SELECT count(*) AS n, count(h."value") AS both FROM "kv-long.balance" b LEFT JOIN "kv-long.history" h '
        "USING (key)"
    )
    (row,) = run("sql", JOB, statement, "--json").rows
    expected = sum(len(line["value"]) for line in true_lines("kv-long", "history"))
    assert row["both"] == expected


def test_compare_two_snapshots_of_a_state(tmp_path: Path) -> None:
    paths = {each["checkpoint_id"]: each["path"] for each in manifest("rocksdb")["snapshots"]}
    same = run("compare", f"{JOB}/{paths[4]}/kv-long.balance", f"{JOB}/{paths[5]}/kv-long.balance", "--json")
    assert same.code == 0 and same.rows == [], same.err
    other = run("compare", f"{JOB}/{paths[2]}/kv-long.balance", f"{JOB}/{paths[3]}/kv-long.balance", "--json")
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
