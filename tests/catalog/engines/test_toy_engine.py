"""A third engine, added by an installed package: every door reads it, and the sources of this project do not name
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.engines.toys import STEP, VERSIONS, Toys, as_toys, write_package, write_toys, write_version

import statestore

KINDS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        yield


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    return write_toys(tmp_path / "toys")


def rows(reader: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read_all().to_pylist()
    return found


def test_the_command_line_has_the_options_of_an_installed_engine(toys: Path) -> None:
    for words in (["--toy-version", "2"], ["--toy-version=2"]):
        assert as_toys(run("scan", toys, *words, "--json").rows) == VERSIONS[2]
    assert as_toys(run("scan", toys, "--json").rows) == VERSIONS[5]
    assert "--toy-version" in run("scan", "--help").out
    unknown = run("scan", toys, "--toy-versions", "2")
    assert unknown.code == 2 and "--toy-versions" in unknown.err


def test_the_newest_state_and_those_before(toys: Path) -> None:
    table = statestore.inspect(toys).table("toys")
    assert as_toys(rows(table.scan())) == VERSIONS[5]
    for number, state in VERSIONS.items():
        assert as_toys(rows(table.scan(version=number))) == state
        assert as_toys(rows(table.scan(as_of=number * STEP + 1))) == state
    assert as_toys(rows(table.scan(as_of=4 * STEP))) == VERSIONS[2]
    with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*asked for 1970-01-01T00:00:00\.999Z"):
        table.scan(as_of=STEP - 1)
    with pytest.raises(statestore.NotFoundError, match=r"VERSION_NOT_FOUND.*versions 1 to 5 can be read"):
        table.scan(version=3)


def test_history_and_changes_are_found_by_comparing(toys: Path) -> None:
    table = statestore.inspect(toys).table("toys")
    state: Counter[tuple[tuple[str, str], int]] = Counter()
    changes = rows(table.changes())
    for number, expected in VERSIONS.items():
        for row in changes:
            if row["_commit_version"] == number:
                state[(row["k"], row["field"]), row["n"]] += KINDS[row["_change_type"]]
        assert dict(+state) == dict.fromkeys(expected.items(), 1)
    history = rows(table.history())
    assert len(history) == 6
    for number, expected in VERSIONS.items():
        begun = [row for row in history if row["_commit_version"] <= number]
        valid = [row for row in begun if row["valid_to"] is None or row["valid_to"].timestamp() * 1000 > number * STEP]
        assert as_toys(valid) == expected
    assert [row["n"] for row in rows(table.history(key={"k": "a", "field": "y"}))] == [2, 20]
    assert len(rows(table.history(key="a"))) == 3


def test_differences_know_that_a_key_has_several_rows(toys: Path) -> None:
    found = {(r["_change"], r["k"], r["field"]) for r in rows(statestore.inspect(toys).table("toys").diff(1, 5))}
    assert found == {("removed", "a", "y"), ("added", "c", "x")}


def test_sql_and_duckdb(toys: Path) -> None:
    text = (
        "SELECT n.k, n.n - o.n AS grown FROM toys n JOIN toys VERSION AS OF 1 o USING (k, field) WHERE n.n >= 0 "
        "ORDER BY n.k, n.n"
    )
    assert statestore.sql(str(toys), text).to_pylist() == [{"k": "a", "grown": 0}, {"k": "b", "grown": 0}]
    connection = statestore.attach(str(toys))
    assert connection.sql("SELECT sum(n) FROM toys WHERE k = 'a'").fetchall() == [(1,)]
    write_version(toys, 6, {("a", "x"): 7})
    assert connection.sql("SELECT sum(n) FROM toys WHERE k = 'a'").fetchall() == [(7,)]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("inspect",), ("toy map", "3 versions")),
        (("get", "toys", "a"), ("x", "1")),
        (("history", "toys", "a"), ("valid_from", "20")),
        (("diff", "toys", "--from", "1"), ("removed",)),
        (("versions", "toys"), ("1", "2", "5")),
        (("scan", "toys", "--version", "2"), ("20",)),
    ],
)
def test_the_command_line(toys: Path, command: tuple[str, ...], said: tuple[str, ...]) -> None:
    answer = run(command[0], toys, *command[1:])
    assert answer.code == 0, answer.err
    assert [text for text in said if text not in answer.out] == []


def test_metadata(toys: Path) -> None:
    tables = statestore.inspect(toys)
    assert [row["version"] for row in rows(tables.table("toys$versions").scan())] == [1, 2, 5]
    assert [row["name"] for row in rows(tables.table("toys$segments").scan(version=2))] == ["2.json"]
    roles = {row["column"]: row["role"] for row in rows(tables.table("toys$schema").scan())}
    assert roles == {"k": "key", "field": "value", "n": "value"}


def test_the_report(toys: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    statestore.write_report(toys, page)
    assert "toy map" in page.read_text()


def test_an_asof_join_must_name_what_tells_rows_apart(toys: Path) -> None:
    import pyarrow as pa

    moments = pa.array([2500, 5500], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    left = pa.table({"k": ["a", "a"], "field": ["y", "y"], "t": moments})
    table = statestore.inspect(toys).table("toys")
    joined = statestore.asof_join(left, table, on=["k", "field"], left_time="t", how="left")
    assert joined["n"].to_pylist() == [20, None]
    with pytest.raises(statestore.UnsupportedError, match=r"JOIN_KIND.*field"):
        statestore.asof_join(left.select(["k", "t"]), table, on=["k"], left_time="t")


def test_options_of_the_engine_are_known_at_its_paths_only(toys: Path, tmp_path: Path) -> None:
    from statestore.catalog.warehouse import open_table
    from statestore.connector.options import query_of

    assert query_of({"toyversion": "2"}).version == 2
    assert open_table(toys, {"toyVersion": "2"}).name == "toys"
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*no folder of toys.*toyversion"):
        open_table(tmp_path, {"toyVersion": "2"})
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*no checkpoint.*batchid"):
        open_table(toys, {"batchId": "2"})


def test_a_pinned_table_stays_as_it_was(toys: Path) -> None:
    table = statestore.inspect(toys).table("toys")
    pinned = table.table.pin()
    later: Toys = {("z", "z"): 9}
    write_version(toys, 6, later)
    assert pinned.kept_versions() == (1, 5) and table.table.kept_versions() == (1, 6)
    assert as_toys(rows(table.scan())) == later


def test_a_package_that_is_broken_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_engine.py").write_text("import no_such_module_anywhere")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[statestore.engines]\nbroken = broken_engine\n")
    monkeypatch.syspath_prepend(tmp_path)
    statestore.connect(tmp_path / "w").create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    assert statestore.inspect(tmp_path / "w").tables() == ["s"]  # no engine of a package is asked about stores
    with pytest.warns(RuntimeWarning, match=r"broken_engine cannot be loaded .*no_such_module_anywhere"):
        assert statestore.inspect(write_toys(tmp_path / "toys")).tables() == ["toys"]
    assert statestore.inspect(tmp_path / "toys").tables() == ["toys"]
