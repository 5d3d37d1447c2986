"""Every checkpoint of Spark's own tests: read whole, equal to Spark's reader, and to what the queries had computed."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.checkpoints.checkpoints_of_spark import unpacked_checkpoints

import statestore
from statestore.formats.errors import UnsupportedError
from statestore.formats.notices import StateStoreWarning, notices_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

WITHOUT_SCHEMAS = "checkpoint-version-2", "checkpoint-version-3.0"
PREVIEW = "checkpoint-version-4.0.0-tws-avro"
WITHOUT_COMMITS = "checkpoint-version-2.1.0"
UNREAD_BY_SPARK = {
    "checkpoint-version-3.2.0-deduplication-with-repartition",
    "checkpoint-version-3.3.0-streaming-deduplication",
    "checkpoint-version-4.0.0-tws-unsaferow",
}
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_checkpoints(tmp_path_factory.mktemp("checkpoints-of-spark"))


@pytest.fixture(scope="module")
def checkpoints(jar: Path) -> dict[str, Path]:
    """The checkpoints with committed state by name."""
    found = {each.parent for each in jar.rglob("state") if (each.parent / "commits").is_dir()}
    return {str(each.relative_to(jar)): each for each in sorted(found)}


def unheard(_: str) -> None:
    pass


def is_without_schema(name: str) -> bool:
    return name.startswith(WITHOUT_SCHEMAS)


def test_the_jar_has_the_releases_that_these_tests_are_about(checkpoints: Mapping[str, Path]) -> None:
    assert len(checkpoints) == 35
    assert len([name for name in checkpoints if is_without_schema(name)]) == 9


def test_all_states_are_read_at_all_versions_with_their_changes(checkpoints: Mapping[str, Path]) -> None:
    read = Counter[str]()
    for name, path in checkpoints.items():
        said: list[str] = []
        if name == PREVIEW:
            continue
        found = statestore.inspect(path)
        for state in found.tables():
            table = found.table(state)
            with notices_to(said.append):
                rows = versions_of(table)
                changed = table.changes().read_all().to_pylist() if len(rows) > 1 or 0 in rows else []
            shown = rows[min(rows)] if min(rows) else Counter()
            for number in sorted(rows):
                of_batch = [row for row in changed if row["_commit_version"] == number]
                removed = ("delete", "update_preimage")
                shown = shown - counted([row for row in of_batch if row["_change_type"] in removed])
                shown = shown + counted([row for row in of_batch if row["_change_type"] not in removed])
                assert shown == rows[number], (name, state, number)
            read[name] += sum(sum(each.values()) for each in rows.values())
        assert any("keyType and valueType" in each for each in said) == is_without_schema(name)
    assert len(read) == 34 and all(read.values()), read


def versions_of(table: Any) -> dict[int, Counter[str]]:
    first, last = table.table.kept_versions()
    return {number: counted(table.scan(version=number).read_all().to_pylist()) for number in range(first, last + 1)}


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows without the columns that only changes have."""
    of_changes = "valid_from", "valid_to"
    shown = [{name: row[name] for name in row if name[0] != "_" and name not in of_changes} for row in rows]
    return Counter(repr(sorted(row.items())) for row in shown)


def test_a_preview_of_transform_with_state_is_refused_by_name(checkpoints: Mapping[str, Path]) -> None:
    with notices_to(unheard), pytest.raises(UnsupportedError, match=r"Avro rows without ids.*preview of Spark 4\.0"):
        statestore.inspect(checkpoints[PREVIEW]).table("countState").scan().read_all()


def test_rows_are_those_of_sparks_own_reader(
    spark: SparkSession, checkpoints: Mapping[str, Path], tmp_path: Path
) -> None:
    compared, refused = 0, set()
    for name, path in checkpoints.items():
        if is_without_schema(name) or name == PREVIEW:
            continue
        copy = Path(shutil.copytree(path, tmp_path / name))  # Spark's reader may write folders
        for state in statestore.inspect(path).tables():
            spark.conf.set(FORMAT, "2" if "checkpoint-v2" in name else "1")
            reader = spark.read.format("statestore").options(**options_of(state))
            with notices_to(unheard, all_threads=True):
                ours = Counter(map(str, reader.load(str(copy)).collect()))
            try:
                frame = spark.read.format("statestore").options(**options_of(state), provider="builtin").load(str(copy))
                theirs = Counter(map(str, frame.collect()))
            except Exception:  # of many classes
                refused.add(name)
                continue
            assert ours == theirs, (name, state)
            compared += 1
    spark.conf.unset(FORMAT)
    assert (compared, refused) == (29, UNREAD_BY_SPARK)


def options_of(state: str) -> dict[str, str]:
    """The options of Spark's source that select a state."""
    base, _, operator = state.partition("_")
    options = {"state": {}, "left": {"joinSide": "left"}, "right": {"joinSide": "right"}}.get(base)
    return (options if options is not None else {"stateVarName": base}) | ({"operatorId": operator} if operator else {})


# Types of the nine without schema files, and rows that follow from the input of the queries and their arithmetic


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


WINDOW = "struct<start: timestamp, end: timestamp>"
SUMS = ", ".join(f"a{number} double, c{number} bigint" for number in range(4))
COMMON = (
    f"{SUMS}, n bigint, first int, b1 boolean, s1 struct<text: string, n: int>, b2 boolean, last int, b3 boolean, "
    "s2 struct<text: string, n: int>, b4 boolean, s3 struct<n: int, text: string>, most int, total bigint, d1 double, "
    "d2 double, list binary, distinct binary"
)
STATISTICS = ", ".join(f"f{number} double" for number in range(295))


@pytest.mark.parametrize(
    ("name", "state", "keys", "values", "expected"),
    [
        (
            "2.3.1-flatMapGroupsWithState-state-format-1",
            "state",
            "k string",
            "most bigint, t bigint",
            {"a": (15, 20000)},
        ),
        ("2.3.1-streaming-aggregate-state-format-1", "state", "k int", "k int, n bigint", {3: (3, 2), 2: (2, 1)}),
        ("2.4.0-streaming-join", "left", "k int", "k int, t timestamp", {k: (k, moment(k)) for k in range(1, 6)}),
        ("2.4.0-streaming-join", "right", "k int", "k int, t timestamp", {k: (k, moment(k)) for k in (2, 4)}),
        ("3.0.0-streaming-statestore-codec", "state", "k int", "n bigint", {1: (1,), 2: (1,), 3: (1,)}),
    ],
)
def test_rows_of_given_types_follow_from_the_input(
    checkpoints: Mapping[str, Path], name: str, state: str, keys: str, values: str, expected: dict[Any, tuple[Any, ...]]
) -> None:
    assert typed(checkpoints, name, state, keys, values) == expected


def typed(checkpoints: Mapping[str, Path], name: str, state: str, keys: str, values: str) -> dict[Any, Any]:
    path = checkpoints[f"checkpoint-version-{name}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", StateStoreWarning)
        rows = statestore.inspect(path, key_type=keys, value_type=values).table(state).scan().read_all().to_pylist()
    found = {tuple(row["key"].values()): tuple(row["value"].values()) for row in rows}
    assert len(found) == len(rows)
    return {key[0] if len(key) == 1 else key: value for key, value in found.items()}


def test_windows_of_given_types(checkpoints: Mapping[str, Path]) -> None:
    path = checkpoints["checkpoint-version-2.3.1-without-commit-log-metadata"]
    opened = statestore.inspect(path, key_type=f"w {WINDOW}", value_type=f"w {WINDOW}, n bigint")
    found = opened.table("state").scan().read_all().to_pylist()
    windows = {(row["key"]["w"]["start"], row["key"]["w"]["end"]): row["value"]["n"] for row in found}
    assert windows == {(moment(10), moment(15)): 3, (moment(15), moment(20)): 1}
    assert all(row["key"]["w"] == row["value"]["w"] for row in found)


def test_aggregates_of_given_types(checkpoints: Mapping[str, Path]) -> None:
    """The numbers 0 to 9 lie in groups: k and k + 5, or the even and the odd ones."""
    prefix = "2.4.5-for-compatibility-test-"
    common = typed(checkpoints, f"{prefix}common-functions", "state", "k int", COMMON)
    assert {key: value[:10] for key, value in common.items()} == {k: (*(2 * k + 5.0, 2) * 4, 2, k) for k in range(5)}
    assert {key: (value[11], value[13], *value[18:22]) for key, value in common.items()} == {
        k: ({"text": str(k), "n": k}, k + 5, k + 5, 2 * k + 5, 2 * k + 5.0, 2 * k + 5.0) for k in range(5)
    }
    statistics = typed(checkpoints, f"{prefix}statistical-functions", "state", "k int", STATISTICS)
    assert {key: value[:8] for key, value in statistics.items()} == {
        k: (2.0, k + 2.5, 12.5, 0.0, 78.125, 2.0, k + 2.5, 12.5) for k in range(5)
    }
    sums = typed(checkpoints, f"{prefix}sum-decimal", "state", "odd int", "total decimal(20,0), list binary")
    assert {key: int(value[0]) for key, value in sums.items()} == {0: 20, 1: 25}
    keys = "a int, b int, c int, text string, n int"
    distinct = typed(checkpoints, f"{prefix}deduplicate", "state", keys, "nothing void")
    assert distinct == {(k + 100, k + 10, k + 5, str(k), k): (None,) for k in range(5)}


def test_a_checkpoint_without_commits_is_read_on_request(jar: Path) -> None:
    """Spark 2.1 logged none. It also wrote four bytes behind each value."""
    path = jar / WITHOUT_COMMITS
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*no folder commits.*option uncommitted"):
        statestore.inspect(path)
    table = statestore.inspect(path, uncommitted=True, key_type="k int", value_type="k int, n bigint").table("state")
    with pytest.warns(StateStoreWarning, match="batch 1 was begun"):
        rows = table.scan().read_all().to_pylist()
    counts = {row["key"]["k"]: (row["value"]["k"], row["value"]["n"]) for row in rows}
    assert counts == {k: (k, 2 if k in (3, 4, 5, 6) else 1) for k in range(1, 9)}
    with pytest.warns(StateStoreWarning, match="batch 0 was begun"):
        assert len(table.scan(version=0).read_all()) == 4
