"""A statement, a transaction and a pinned warehouse see one version of each source, whatever they name of it.

The sources move on at every look, so whoever looks twice mixes two versions.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.engines.toys import write_package
from support.moving_sources import Moving, moved_on_by_looks, moving_stores, moving_toys

import statestore
from statestore.catalog.log import store_log
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.cli import shell as shell_session
from statestore.connector.cli.shell import Session
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.sql import limited_statement, query
from statestore.formats.state_table import Query

Ask = Callable[[str], Sequence[Any]]
LATE = "2100-01-01T00:00Z"
STATEMENTS = 2

NUMBERS = ["max(n) FROM {}", "min(n) FROM {}", "max(n) FROM history('{}')", "max(n) FROM changes('{}')"]
VERSIONS = ['max(version) FROM "{}$versions"', 'max(version) FROM "{}$snapshots"']
LAST = ["max(_commit_version) FROM history('{}')", "max(_commit_version) FROM changes('{}')"]
OF_STATES = ["max(value) FROM {}", "max(value) FROM history('{}')", "max(value) FROM changes('{}')"]
IN_SQL = "max(n) FROM {} TIMESTAMP AS OF '" + LATE + "'"
IN_DUCKDB = "max(n) FROM as_of('{}', '" + LATE + "')"


def parts_of(later: str, engine: bool) -> list[tuple[str, str, str]]:
    """The source of each part of a statement, the part, and whether it is a number or a version."""
    if engine:
        shown = {"number": [*NUMBERS, later], "version": [*VERSIONS, *LAST]}
        return [("toys", each.format("toys"), kind) for kind, several in shown.items() for each in several]
    found = [(name, each.format(name), "number") for name in ("t", "u") for each in [*NUMBERS, later]]
    found += [(name, each.format(name), "version") for name in ("t", "u") for each in VERSIONS]
    found += [(name, f"count(*) - sum(n) // max(n) + max(n) FROM {name}", "number") for name in ("t", "u")]
    found += [("s", each.format(f"s.{state}"), "number") for state in "xy" for each in OF_STATES]
    return found + [("s", each.format(f"s.{state}"), "version") for state in "xy" for each in VERSIONS]


def check(moving: Moving, parts: Sequence[tuple[str, str, str]], answer: Sequence[Any], seen: dict[str, Any]) -> None:
    """Add the number of each part to those that were ``seen`` of its source, which must be one."""
    assert len(answer) == len(parts)
    for (source, text, kind), value in zip(parts, answer, strict=True):
        number = value if kind == "number" else moving.numbers[source][value]
        assert seen.setdefault(source, number) == number, (source, text, seen)


def statement(parts: Sequence[tuple[str, str, str]]) -> str:
    return "SELECT " + ", ".join(f"(SELECT {text}) AS c{number}" for number, (_, text, _) in enumerate(parts))


@pytest.fixture(scope="module", params=["stores", "engine"])
def moving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moving]:
    folder = tmp_path_factory.mktemp("moving")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(folder / "toys.zip"))
        yield moving_stores(folder / "warehouse") if request.param == "stores" else moving_toys(folder / "toys")


def by_sql(path: Path) -> Ask:
    return lambda text: list(statestore.sql(str(path), text).to_pylist()[0].values())


def by_attach(path: Path) -> Ask:
    connection = statestore.attach(str(path))
    return lambda text: (connection.execute(text).fetchall() or [()])[0]


def in_the_explorer(path: Path) -> Ask:
    class Rows:
        def of(self, relation: Any) -> Any:
            self.found = relation.to_arrow_table()
            return self.found

    class Unlimited:
        def are_passed(self) -> bool:
            return False

        def check(self) -> None: ...

    places = OpenedPaths([str(path)], {})

    def ask(text: str) -> Sequence[Any]:
        places.renew(0)
        rows = Rows()
        limited_statement.run_limited(places.warehouse(0), text, rows, Unlimited())
        return list(rows.found.to_pylist()[0].values())

    return ask


def in_the_shell(path: Path) -> Ask:
    found: list[Any] = []
    shell = Session(str(path))

    def ask(text: str) -> Sequence[Any]:
        found.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                shell_session, "show_rows", lambda schema, batches, form: found.extend(b.to_pylist() for b in batches)
            )
            shell.statement(text)
        return list(found[0][0].values()) if found else []

    return ask


@pytest.mark.quick("stores-by_sql", "stores-by_attach", "engine-in_the_explorer", "engine-in_the_shell")
@pytest.mark.parametrize("door", [by_sql, by_attach, in_the_explorer, in_the_shell])
def test_a_statement_sees_one_version(moving: Moving, door: Callable[[Path], Ask]) -> None:
    chance = random.Random(door.__name__)
    parts = parts_of(IN_DUCKDB if door is by_attach else IN_SQL, "toys" in moving.numbers)
    ask, before = door(moving.path), moving.steps
    with moved_on_by_looks(moving):
        for _ in range(STATEMENTS):
            chosen = chance.sample(parts, 5)
            check(moving, chosen, ask(statement(chosen)), {})
    assert moving.steps >= before + STATEMENTS, "nothing has moved"


@pytest.mark.quick("stores-in_the_shell", "engine-by_attach")
@pytest.mark.parametrize("door", [by_attach, in_the_shell])
def test_a_transaction_sees_one_version(moving: Moving, door: Callable[[Path], Ask]) -> None:
    """Although the sources also move between its statements, and a compaction replaces all files."""
    chance = random.Random(door.__name__)
    parts = parts_of(IN_DUCKDB if door is by_attach else IN_SQL, "toys" in moving.numbers)
    ask, seen, later = door(moving.path), dict[str, Any](), dict[str, Any]()
    with moved_on_by_looks(moving):
        ask("BEGIN")
        for _ in range(STATEMENTS):
            chosen = chance.sample(parts, 4)
            check(moving, chosen, ask(statement(chosen)), seen)
            moving.move()
        ask("COMMIT")
        check(moving, chosen, ask(statement(chosen)), later)
    assert all(later[source] > seen[source] for source in later)


@pytest.mark.quick("stores")
def test_the_tables_of_a_pinned_warehouse_stay(moving: Moving) -> None:
    """Each read of them, by every question that they answer; the newest version is seen by who opens them again."""
    names = ["toys"] if "toys" in moving.numbers else ["t", "s.x"]
    with moved_on_by_looks(moving):
        pinned, seen = statestore.inspect(moving.path).pin(), defaultdict[str, set[int]](set)
        for _ in range(2):
            for name in names:
                table, source = pinned.table(name), name.partition(".")[0]
                column = "value" if "." in name else "n"
                for rows in (table.scan(), table.history(), table.changes(), table.scan(as_of=LATE)):
                    seen[source].add(max(rows.read_all().column(column).to_pylist()))
                newest = [table.versions(), pinned.table(f"{name}$snapshots").scan().read_all()]
                newest += [pinned.table(f"{name}$versions").scan().read_all()]
                numbers = moving.numbers[source]
                seen[source] |= {numbers[max(each["version"].to_pylist())] for each in newest}
                assert pinned.open(name).kept_versions()[1] == max(newest[0]["version"].to_pylist())
            moving.move()
        assert all(len(numbers) == 1 for numbers in seen.values()), seen
        fresh = open_warehouse(moving.path).open(names[0])
        assert moving.numbers[names[0]][fresh.kept_versions()[1]] > max(seen[names[0]])


def test_one_look_at_the_store_that_a_statement_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other stores of the warehouse are not looked at, nor is the one that is named looked at again."""
    moving = moving_stores(tmp_path)
    load, looks = vars(store_log)["load_log_state"], list[str]()

    def counted(storage: Any, *given: Any, **named: Any) -> Any:
        looks.append(str(storage))
        return load(storage, *given, **named)

    monkeypatch.setattr(store_log, "load_log_state", counted)
    parts = [part for part in parts_of(IN_SQL, False) if part[0] == "t"]
    check(moving, parts, by_sql(tmp_path)(statement(parts)), {})
    assert looks == [str(tmp_path / "t")]


def test_what_an_expiry_has_removed_is_refused(tmp_path: Path) -> None:
    """A pinned table never shows less than its version had."""
    with statestore.connect(tmp_path).create_store("p", key={"k": "bigint"}, value={"n": "bigint"}) as store:
        for number in range(1, 5):
            store.put(1, {"n": number}, timestamp=number * 1_000)
            store.commit()
        pinned = statestore.inspect(tmp_path).pin().table("p")
        assert pinned.history().read_all().num_rows == 4 and pinned.changes().read_all().num_rows == 7
        store.put(2, {"n": 9}, timestamp=9_000)
        store.commit()
        store.expire(before=3_500)
        store.compact(full=True)
        store.vacuum()
        assert pinned.scan().read_all().column("n").to_pylist() == [4]
        for asked in (pinned.history, pinned.changes, partial(pinned.scan, as_of=2_000)):
            with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT|VERSION_NOT_FOUND"):
                asked().read_all()
        with pytest.raises(statestore.NotFoundError, match=r"VERSION_NOT_FOUND.*0 to 4 can be read"):
            pinned.scan(version=5)
        with pytest.raises(statestore.NotFoundError, match="FILES_REPLACED"):
            pinned.changes(start_time=4_000)
        assert [each.rows for each in pinned.table.splits(Query())] == [1]
        assert query.sql(str(tmp_path), "SELECT count(*) c FROM history('p')").column(0).to_pylist() == [3]
