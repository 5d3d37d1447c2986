"""State of which a checkpoint does not say all: no schema file, or no commit.

Releases up to Spark 3.0 wrote no schema files. Without theirs, checkpoints of later releases are like those.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import LOCAL, MORE, checkpoint_path

import statestore
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.notices import notices_to
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.spark_schema import ArrayOf, DecimalOf, MapOf, SparkType, StructOf

AGGREGATION, JOIN = "spark4.3.0-agg__hdfs", "spark4.3.0-join__hdfs"
KINDS = (
    AGGREGATION,
    JOIN,
    "spark4.3.0-agg__rkcl",
    "spark4.3.0-chain__rkcl",
    "spark4.3.0-fmgws__hdfs",
    "spark4.3.0-limit__rkcl",
    "spark4.3.0-sess__rkck",
    "spark4.3.0-win__hdfsck",
)
SOME = [name if name == AGGREGATION else pytest.param(name, marks=pytest.mark.slow) for name in KINDS]
_NAMES = {
    "day-time interval": "interval day to second",
    "year-month interval": "interval year to month",
}


def ddl(kind: SparkType) -> str:
    """A type as users write it."""
    if isinstance(kind, StructOf):
        return f"struct<{', '.join(f'`{field.name}` {ddl(field.type)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayOf):
        return f"array<{ddl(kind.element)}>"
    if isinstance(kind, MapOf):
        return f"map<{ddl(kind.key)}, {ddl(kind.value)}>"
    if isinstance(kind, DecimalOf):
        return f"decimal({kind.precision}, {kind.scale})"
    return kind.declared or _NAMES.get(kind.name, kind.name)


def types_of(path: Path) -> dict[str, str]:
    """The types in schema files as options."""
    keys, values = {}, {}
    for operator in open_checkpoint(LOCAL, str(path)).operators:
        for store in operator.stores:
            family, base = store.families[0], "state" if store.name == "default" else store.name.split("-")[0]
            if store.name.endswith("keyToNumValues"):
                continue
            name = f"{base}_{operator.operator_id}"
            keys[name], values[name] = family.key.without("index"), family.value.without("matched")
    return {
        "key_type": "; ".join(f"{name} = {ddl(kind)}" for name, kind in keys.items()),
        "value_type": "; ".join(f"{name} = {ddl(kind)}" for name, kind in values.items()),
    }


@pytest.fixture
def stripped(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a function that copies a checkpoint without its schema files."""

    def copy(path: Path) -> Path:
        found = Path(shutil.copytree(path, tmp_path / "c"))
        for file in [*found.rglob("schema"), *found.rglob(".schema.crc")]:
            file.unlink()
        return found

    return copy


def unheard(_: str) -> None:
    pass


def counted(table: Any) -> Counter[str]:
    return Counter(map(repr, table.read_all().to_pylist()))


def all_rows(checkpoint: Any, state: str) -> list[Counter[str]]:
    table = checkpoint.table(state)
    first, last = table.table.kept_versions()
    found = [counted(table.scan(version=number)) for number in range(first, last + 1)]
    return [*found, counted(table.history()), counted(table.changes())]


@pytest.mark.parametrize("name", [*SOME, pytest.param("spark4.1.4-values__hdfs", marks=pytest.mark.slow)])
def test_given_types_show_the_rows_of_schema_files(name: str, stripped: Callable[[Path], Path]) -> None:
    path = checkpoint_path(name) if name in KINDS else checkpoint_path(name, MORE)
    expected, found = statestore.inspect(path), statestore.inspect(stripped(path), **types_of(path))
    assert found.tables() == expected.tables()
    for state in expected.tables():
        assert found.table(state).scan().schema.names == expected.table(state).scan().schema.names
        assert all_rows(found, state) == all_rows(expected, state)


@pytest.mark.parametrize("name", SOME)
def test_without_types_the_stored_bytes_are_shown_with_a_notice(name: str, stripped: Callable[[Path], Path]) -> None:
    path = checkpoint_path(name)
    expected, copy = statestore.inspect(path), stripped(path)
    found = statestore.inspect(copy)
    assert found.tables() == expected.tables()
    for state in expected.tables():
        theirs, ours = expected.table(state), found.table(state)
        assert ours.table.kept_versions() == theirs.table.kept_versions()
        said: list[str] = []
        with notices_to(said.append):
            rows = ours.scan().read_all()
        assert [(field.name, str(field.type)) for field in rows.schema][:2] == [("key", "binary"), ("value", "binary")]
        assert rows.num_rows == theirs.scan().read_all().num_rows
        assert len(said) == 1 and "stored bytes are shown; give keyType and valueType" in said[0]
        with notices_to(unheard):
            some = rows.to_pylist()[:1]
            for row in some:
                found_row = ours.get(row["key"])
                assert found_row is not None and found_row["value"] == row["value"]
            assert len(ours.changes().read_all()) >= 0
        with pytest.raises(NotFoundError, match="ROWS_UNCERTAIN"):
            statestore.inspect(copy, strict=True).table(state).scan().read_all()


def test_a_key_alone_may_be_typed(stripped: Callable[[Path], Path]) -> None:
    path = checkpoint_path(JOIN)
    left = statestore.inspect(stripped(path), key_type=types_of(path)["key_type"]).table("left")
    said: list[str] = []
    with notices_to(said.append):
        rows = left.scan().read_all()
    keys = statestore.inspect(path).table("left").scan(columns=["key"])
    assert Counter(map(repr, rows.column("key").to_pylist())) == Counter(
        map(repr, keys.read_all().column("key").to_pylist())
    )
    assert str(rows.schema.field("value").type) == "binary"
    assert len(said) == 1 and "give valueType for columns" in said[0]


@pytest.mark.parametrize(
    ("keys", "values", "found"),
    [
        (
            "",
            "count bigint",
            r"state/0/\d as of batch \d+: row: found 64 bytes .*expected an end of its values at byte 16",
        ),
        ("", ", ".join(f"n{each} bigint" for each in range(9)), r"row: found 64 bytes .*expected 80 bytes"),
        ("k bigint", "", r"row: found 32 bytes .*expected an end of its values at byte 16"),
        ("k int, n bigint", "", r"row\.k: found .*expected nothing in the slot beside a value of type integer"),
        ("k string, n int", "", r"row\.k: found .*expected the value at byte 24"),
        ("k struct<a: string>", "", r"row\.k: found 11 bytes .*expected 16 bytes"),
        ("k array<int>", "", r"row\.k: found 11 bytes .*expected a count of elements that fit into the array"),
        ("k map<int, int>", "", r"row\.k: found .*expected keys and values inside the map"),
        ("k decimal(38, 0)", "", r"row.*found .*expected"),
    ],
)
def test_rows_that_do_not_fit_are_one_error(
    keys: str, values: str, found: str, stripped: Callable[[Path], Path]
) -> None:
    path = checkpoint_path(AGGREGATION)
    types = types_of(path) | ({"key_type": keys} if keys else {}) | ({"value_type": values} if values else {})
    table = statestore.inspect(stripped(path), **types).table("state")
    for columns in (None, ["partition_id"]):  # every row is checked, whatever is shown of it
        with pytest.raises(InvalidInputError, match=found) as caught:
            table.scan(columns=columns).read_all()
        assert "do not fit keyType and valueType of state" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"key_type": "k innt"}, r"'k innt': type 'innt'"),
        ({"key_type": "k array<int"}, r"keyType is 'k array<int'"),
        ({"key_type": "k array<int, int>"}, "another number of members"),
        ({"value_type": ""}, ""),
        ({"value_type": "state="}, "is empty"),
        ({"value_type": "state=n int; state=n bigint"}, "two types of 'state'"),
        ({"value_type": "left=n int"}, r"no such state; without a schema file there are state, state_0"),
    ],
)
def test_types_that_cannot_be_are_refused(
    options: dict[str, str], found: str, stripped: Callable[[Path], Path]
) -> None:
    path = stripped(checkpoint_path(AGGREGATION))
    if not found:  # nothing given
        assert list(statestore.inspect(path, **options).tables()) == ["state"]
        return
    with pytest.raises(InvalidInputError, match=found):
        statestore.inspect(path, **options)


def test_types_beside_a_schema_file_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"a schema file of .* says the types; leave out the option"):
        statestore.inspect(checkpoint_path(AGGREGATION), key_type="k string")


# Batches that were begun and never committed


@pytest.fixture
def died(tmp_path: Path) -> Callable[[str], tuple[Path, int]]:
    """Return a function that copies a checkpoint as if its query had died before the last commit; (path, batch)."""

    def copy(name: str) -> tuple[Path, int]:
        path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "c"))
        last = max(int(file.name) for file in (path / "commits").iterdir() if file.name.isdecimal())
        (path / "commits" / str(last)).unlink()
        return path, last

    return copy


@pytest.mark.parametrize("name", [AGGREGATION, "spark4.3.0-agg__rkcl"])
def test_a_batch_that_was_not_committed_is_shown_on_request(name: str, died: Callable[[str], tuple[Path, int]]) -> None:
    path, last = died(name)
    before = statestore.inspect(path).table("state")
    assert before.table.kept_versions()[1] == last - 1
    table = statestore.inspect(path, uncommitted=True).table("state")
    assert table.table.kept_versions()[1] == last
    truth = statestore.inspect(checkpoint_path(name)).table("state")
    said: list[str] = []
    with notices_to(said.append):
        assert counted(table.scan(version=last - 1)) == counted(truth.scan(version=last - 1))
        assert not said
        assert counted(table.scan()) == counted(truth.scan(version=last))
        assert counted(table.changes()) == counted(truth.changes())
    assert len(said) == 1 and f"batch {last} was begun, and no commit of it is there" in said[0]
    with pytest.raises(NotFoundError, match=r"ROWS_UNCERTAIN.*was begun"):
        statestore.inspect(path, uncommitted=True, strict=True).table("state").scan().read_all()


def test_a_batch_that_was_written_in_part_is_refused_with_its_partitions(
    died: Callable[[str], tuple[Path, int]],
) -> None:
    path, last = died(AGGREGATION)
    for file in (path / "state/0/1").glob(f"{last + 1}.*"):
        file.unlink()
    with pytest.raises(NotFoundError, match=r"begun and not committed, and 1 of \d+ partitions .* of it \(1\)"):
        statestore.inspect(path, uncommitted=True).table("state").scan().read_all()
    for file in (path / "state/0").glob(f"*/{last + 1}.*"):
        file.unlink()  # of which nothing is written: it is as if it were not begun
    assert statestore.inspect(path, uncommitted=True).table("state").table.kept_versions()[1] == last - 1


def test_a_query_without_commits_is_read_on_request(died: Callable[[str], tuple[Path, int]]) -> None:
    path, last = died(AGGREGATION)
    shutil.rmtree(path / "commits")
    with pytest.raises(NotFoundError, match=r"NOTHING_HERE.*no folder commits.*option uncommitted"):
        statestore.inspect(path)
    table = statestore.inspect(path, uncommitted=True).table("state")
    truth = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    with notices_to(unheard):
        assert counted(table.scan(version=last)) == counted(truth.scan(version=last))


def test_files_that_only_a_commit_names_are_refused(died: Callable[[str], tuple[Path, int]]) -> None:
    path, last = died("spark4.3.0-agg__rkv2")
    assert statestore.inspect(path).table("state").table.kept_versions()[1] == last - 1
    with pytest.raises(UnsupportedError, match=rf"batch {last}, which was not committed, in checkpoint format 2"):
        statestore.inspect(path, uncommitted=True)
