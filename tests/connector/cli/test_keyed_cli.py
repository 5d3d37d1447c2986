"""Metadata of keyed states, and their summaries and upkeep on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.command_line import run
from support.keyed.keyed_made import NAMES, Made, make, one_state, prices, rows

import statestore
from statestore.connector.cli.arguments import complete_store
from statestore.formats.errors import NotFoundError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Snapshots 1 to 6 of two tasks, of which the third was discarded; and a plain store."""
    made = make(tmp_path_factory.mktemp("warehouse"), seed=11, tasks=2, versions=6, discard=(3,))
    prices(made.path, "prices")
    return made


# Metadata


def test_metadata_tells_of_snapshots_and_their_files(made: Made) -> None:
    def table(suffix: str, version: int | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            statestore.inspect(made.path)
            .table(f"sessions.counts${suffix}")
            .scan(version=version)
            .read_all()
            .to_pylist()
        )
        return found

    versions = table("versions")
    assert [(row["version"], row["operation"]) for row in versions] == [
        *((version, "snapshot") for version in range(1, 7)),
        (7, "discard"),
    ]
    assert all(row["writer"] for row in versions)
    assert [row["version"] for row in versions if row["bytes"] is None] == [3, 7]
    assert {row["version"] for row in table("snapshots") if row["readable"]} == set(made.kept)
    assert [row["version"] for row in table("snapshots", 4)] == [1, 2, 3, 4]
    assert table("schema") == [
        {"column": "user", "type": "string", "role": "key"},
        {"column": "value", "type": "bigint", "role": "value"},
    ]
    for version in (*made.kept, None):
        files = table("segments", version)
        assert files
        for row in files:
            assert (Path(made.path) / "sessions" / row["name"]).stat().st_size == row["bytes"]
            assert row["first_commit"] <= (version or 6)
        counted = [row["rows"] for row in files]
        if None not in counted:
            assert sum(counted) == len(made.kept[version or 6]["counts"])
    with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
        table("segments", 3)
    found = statestore.sql(made.path, "DESCRIBE HISTORY sessions.counts")
    assert found["version"].to_pylist() == [7, 6, 5, 4, 3, 2, 1]
    attached = statestore.attach(made.path).sql('SELECT version FROM sessions."counts$snapshots" WHERE readable')
    assert {version for (version,) in attached.fetchall()} == set(made.kept)


def test_roles_of_columns(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"})
    with store.backend() as backend:
        backend.map_state("m", "string", "double", namespace={"window": "timestamp"})
        backend.list_state("l", "int")
        store.commit([backend.snapshot().result()])
    roles = {
        name: statestore.sql(str(tmp_path), f"SELECT role FROM s.{name}$schema")["role"].to_pylist() for name in "lm"
    }
    assert roles == {"l": ["key", "position", "value"], "m": ["key", "namespace", "user_key", "value"]}


# The command line


def test_names_of_states_are_completed(made: Made) -> None:
    context = SimpleNamespace(params={"path": made.path})
    assert complete_store(context, "") == ["prices", "sessions", *NAMES]  # type: ignore[arg-type]
    assert complete_store(context, "sessions.c") == ["sessions.counts"]  # type: ignore[arg-type]


def test_inspect_tells_each_state(made: Made) -> None:
    found = {item["store"]: item for item in run("inspect", made.path, "--json").rows}
    assert list(found) == ["prices", *NAMES]
    assert [found[name]["kind"] for name in NAMES] == ["keyed map", "keyed value"]
    counts = found["sessions.counts"]
    assert (counts["oldest_version"], counts["version"], counts["retention"]) == (1, 6, "5 snapshots")
    assert (counts["key"], counts["value"]) == ({"user": "string"}, {"value": "bigint"})
    assert (counts["status"], counts["health"]) == ("ok", [])
    assert counts["bytes"] > 0


def test_inspect_counts_rows_and_misses_files(tmp_path: Path) -> None:
    one_state(tmp_path, "s", "t")
    (item,) = run("inspect", tmp_path, "--json").rows
    assert item["keys"] == item["rows"] == 1
    (file,) = (tmp_path / "s" / "segments").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    (item,) = run("inspect", tmp_path, "--json").rows
    assert item["status"] == "damaged"
    file.unlink()
    answer = run("inspect", tmp_path, "--json")
    assert answer.code == 1
    assert "is missing" in answer.rows[0]["health"][0]


def test_get_and_history_take_a_key_or_more_of_it(made: Made) -> None:
    (user, attribute), value = next(iter(made.newest["attrs"].items()))
    wanted = {key: v for key, v in made.newest["attrs"].items() if key[0] == user}
    told = run("get", made.path, "sessions.attrs", user, "--json").rows
    assert {(row["user"], row["user_key"]): row["value"] for row in told} == wanted
    (row,) = run("get", made.path, "sessions.attrs", json.dumps({"user": user, "user_key": attribute}), "--json").rows
    assert row == {"user": user, "user_key": attribute, "value": value}
    for version in made.kept:
        answer = run("get", made.path, "sessions.counts", user, "--version", str(version), "--json")
        count = made.kept[version]["counts"].get((user,))
        assert [row["value"] for row in answer.rows] == ([] if count is None else [count])
        assert answer.code == (count is None)
    versions = run("history", made.path, "sessions.attrs", user, "--json").rows
    expected = made.table("attrs").history(filter=("user", "=", user)).read_all()
    assert len(versions) == expected.num_rows
    keys: tuple[Any, ...] = (user, (user,), {"user": user})
    for key in keys:
        assert made.table("attrs").history(key=key).read_all().num_rows == expected.num_rows
    keys = (user, attribute), {"user": user, "user_key": attribute}
    for key in keys:
        found = made.table("attrs").history(key=key).read_all().to_pylist()
        assert found == [row for row in expected.to_pylist() if row["user_key"] == attribute]
    assert run("get", made.path, "sessions.attrs", '{"user": 1, "user_key": "a"}').code == 2


def test_diff_changes_and_versions(made: Made) -> None:
    before, after = made.kept[2]["counts"], made.newest["counts"]
    found = run("diff", made.path, "sessions.counts", "--from", "2", "--json").rows
    assert {row["key"]["user"] for row in found if row["change"] == "added"} == {
        user for (user,) in after.keys() - before.keys()
    }
    changed = run("changes", made.path, "sessions.counts", "--from", "4", "--to", "4", "--json").rows
    expected = made.table("counts").changes(4, 4).read_all()
    assert len(changed) == expected.num_rows
    told = run("versions", made.path, "sessions.counts", "--json").rows
    assert [row["version"] for row in told] == [7, 6, 5, 4, 3, 2, 1]
    where = run("scan", made.path, "sessions.counts", "--where", "value >= 50", "--json").rows
    assert {row["user"]: row["value"] for row in where} == {u: v for (u,), v in after.items() if v >= 50}


def test_upkeep_says_what_is_not_for_keyed_stores(made: Made) -> None:
    for command in ("compact", "expire"):
        for name in ("sessions", "sessions.counts"):
            answer = run(command, made.path, name)
            assert answer.code == 1
            assert "SNAPSHOTS_ONLY" in answer.err
            assert "discard" in answer.err
        answer = run(command, made.path, "--json")
        assert (answer.code, [row["store"] for row in answer.rows]) == (0, ["prices"])
        assert answer.err.count("'sessions' is a keyed store") == 1
    assert "TABLE_NOT_FOUND" in run("vacuum", made.path, "nothing").err


def test_vacuum_takes_what_no_snapshot_names_once(tmp_path: Path) -> None:
    made = make(tmp_path, seed=5, versions=3)
    left = tmp_path / "sessions" / "shared" / f"{'0' * 32}.sst"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"left behind")
    for arguments in ((), ("sessions",), ("sessions.counts",)):
        answer = run("vacuum", tmp_path, *arguments, "--older-than", "0", "--dry-run", "--json")
        assert [(row["store"], row["file"], row["bytes"]) for row in answer.rows] == [
            ("sessions", f"shared/{left.name}", 11)
        ]
    assert left.exists()
    (row,) = run("vacuum", tmp_path, "--older-than", "0", "--json").rows
    assert row["removed"]
    assert not left.exists()
    for version, states in made.kept.items():
        assert rows(made.table("counts").scan(version=version).read_all()) == states["counts"]


@pytest.mark.slow
def test_the_report_shows_states(made: Made, tmp_path: Path) -> None:
    answer = run("report", made.path, "-o", tmp_path / "report.html")
    assert answer.code == 0, answer.err
    page = (tmp_path / "report.html").read_text()
    assert "keyed value" in page
    assert "sessions.attrs" in page
