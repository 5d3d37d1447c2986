"""Verdicts about a snapshot's states for a job that is started from it, as Flink decides them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from support.engines.toy_engine import Toys
from support.flink.fixtures import copied, fixture, manifest
from support.flink.snapshot_reads import source_at

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink import description_file
from statestore.formats.flink.job_description import (
    DescribedOperator,
    DescribedState,
    JobDescription,
    default_max_parallelism,
)
from statestore.formats.flink.restore_check import restore_findings
from statestore.formats.flink.serializers import flink_types
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, ListOf, MapOf, Opaque, PojoOf, TimerOf
from statestore.formats.flink.serializers.type_names import KRYO
from statestore.formats.flink.source import FlinkSource
from statestore.formats.jobs import RestoreFinding

LONG, INT, STRING, VOID = Basic("long"), Basic("int"), Basic("string"), Basic("void")
PERSON = PojoOf("x.P", (("age", INT),))
TALLER = PojoOf("x.P", (("age", INT), ("height", INT)))


def source(run: str, number: int) -> FlinkSource:
    """The snapshot of a run with a checkpoint id."""
    (place,) = [each["path"] for each in manifest(run)["snapshots"] if each["checkpoint_id"] == number]
    return source_at(fixture(run) / place)


def verdicts(found: list[RestoreFinding]) -> dict[str | None, str]:
    return {each.state: each.verdict for each in found}


def value(kind: FlinkType, form: Any = "value", **more: Any) -> DescribedState:
    return DescribedState("s", form, kind, VOID, **more)


def timers(kind: TimerOf) -> DescribedState:
    return DescribedState("s", "timers", kind)


SAVED = DescribedOperator("a" * 32, "op", True, 2, 128, key=STRING, states=(value(LONG),))


def found(saved: DescribedOperator, job: DescribedOperator | None) -> list[RestoreFinding]:
    job_of = JobDescription("job", () if job is None else (job,), 6)
    return restore_findings(JobDescription("saved", (saved,), 6), job_of)


# Jobs that Flink really restored


@pytest.mark.parametrize(
    ("run", "saved", "job"),
    [
        ("rescaled-small", 2, 4),
        ("rescaled-small", 5, 7),
        ("rescaled-small-1.20", 1, 2),
        ("operator-rocksdb", 3, 6),
        ("operator-hashmap-snappy", 3, 5),
        ("upgrade-rocksdb", 3, 5),
        ("upgrade-hashmap", 3, 5),
        ("upgrade-hashmap", 3, 6),
    ],
)
def test_a_restore_that_flink_made_is_not_refused(run: str, saved: int, job: int) -> None:
    rows = source(run, saved).restored_by(source(run, job))
    assert len(rows) > 3
    assert [each for each in rows if each.prevents] == []


@pytest.mark.parametrize("run", ["upgrade-rocksdb", "upgrade-hashmap"])
def test_the_states_of_a_pojo_that_gained_fields_are_migrated(run: str) -> None:
    rows = [each for each in source(run, 3).restored_by(source(run, 5)) if each.operator == "subscribers"]
    migrated = {each.state for each in rows if each.verdict == "after migration"}
    assert migrated == {"one", "many", "by-name"}
    assert all("field added added, field plus added" in each.reason for each in rows if each.state in migrated)
    assert {each.verdict for each in rows if each.state not in migrated} == {"as is"}


@pytest.mark.parametrize(
    "run", ["rocksdb", "types-rocksdb", "sql", "windows-rocksdb", "avro-rocksdb", "shapes-rocksdb"]
)
def test_a_job_restores_its_own_snapshot(run: str) -> None:
    every = sorted(each["checkpoint_id"] for each in manifest(run)["snapshots"])
    for saved, job in ((every[0], every[-1]), (every[-1], every[0]), (every[0], every[0])):
        assert {each.verdict for each in source(run, saved).restored_by(source(run, job))} <= {"as is", "unknown"}


def test_values_of_kryo_are_unknown() -> None:
    rows = source("rocksdb", 4).restored_by(source("rocksdb", 3))
    assert {each.state for each in rows if each.verdict == "unknown"} == {"m-kryo", "m-kryo-map"}


def test_state_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    run = copied("changelog", tmp_path)
    (changes,) = [each for each in run.glob("dstl/*/dstl/*") if each.is_file()]
    changes.write_bytes(b"\7" + changes.read_bytes()[1:])
    found = source_at(run / manifest("changelog")["snapshots"][0]["path"])
    rows = found.restored_by(found)
    assert any("expected 00 or 01" in each.reason for each in rows if each.verdict == "unknown")


def test_a_snapshot_of_an_older_flink_reads_no_newer_metadata() -> None:
    first = source("operator-rocksdb", 3).restored_by(source("operator-1.20", 2))[0]
    assert (first.operator, first.verdict) == ("", "incompatible") and "version 6" in first.reason
    assert source("operator-1.20", 2).restored_by(source("operator-rocksdb", 3))[0].operator != ""


def test_another_job_loses_every_operator_with_state() -> None:
    rows = source("upgrade-rocksdb", 3).restored_by(source("sql", 3))
    by_operator = {each.operator: each.verdict for each in rows if each.state is None}
    assert by_operator["subscribers"] == "lost"
    assert by_operator["Sink: Writer"] == "unused"  # it has no state
    assert list(by_operator.values()).count("new") > 1


def test_a_source_of_another_engine_is_no_job() -> None:
    with pytest.raises(InvalidInputError) as error:
        source("sql", 3).restored_by(Toys(Path("elsewhere"), {}))
    assert error.value.code == ErrorCode.STATE_SELECTION


# Flink's rules, one by one


def test_max_parallelism_that_the_job_sets_cannot_change() -> None:
    (operator, _) = found(SAVED, dataclasses.replace(SAVED, max_parallelism=256))
    assert operator.verdict == "incompatible" and "128 became 256" in operator.reason


def test_flinks_own_max_parallelism_gives_way() -> None:
    own = dataclasses.replace(SAVED, parallelism=200, max_parallelism=512, may_be_default=True)
    (operator, _) = found(dataclasses.replace(SAVED, max_parallelism=300), own)
    assert operator.verdict == "unknown" and "Flink takes 300" in operator.reason
    unset = dataclasses.replace(SAVED, max_parallelism=None)
    assert verdicts(found(SAVED, unset)) == {None: "as is", "s": "as is"}


@pytest.mark.parametrize(("parallelism", "chosen"), [(1, 128), (85, 128), (86, 256), (200, 512), (30000, 32768)])
def test_flinks_choice_of_the_max_parallelism(parallelism: int, chosen: int) -> None:
    assert default_max_parallelism(parallelism) == chosen


def test_parallelism_is_at_most_the_max_parallelism() -> None:
    (operator, _) = found(SAVED, dataclasses.replace(SAVED, parallelism=129, max_parallelism=None))
    assert operator.verdict == "incompatible" and "129" in operator.reason
    assert found(SAVED, dataclasses.replace(SAVED, parallelism=128, max_parallelism=None))[0].verdict == "as is"


def test_keys_are_not_migrated() -> None:
    saved, job = (dataclasses.replace(SAVED, key=each) for each in (PERSON, TALLER))
    assert found(saved, job)[0].verdict == "incompatible"
    assert found(SAVED, dataclasses.replace(SAVED, key=LONG))[0].reason == "key: string became long"
    assert found(SAVED, dataclasses.replace(SAVED, key=None))[0].verdict == "unknown"
    kryo = dataclasses.replace(SAVED, key=Opaque(KRYO, "x.K"))
    assert found(kryo, kryo)[0].verdict == "unknown"


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (value(LONG), value(LONG), "as is"),
        (value(PERSON), value(TALLER), "after migration"),
        (value(LONG), value(INT), "incompatible"),
        (value(LONG), value(LONG, "reducing"), "incompatible"),
        (value(LONG, "unknown"), value(LONG), "as is"),
        (value(ListOf(PERSON), "list"), value(ListOf(TALLER), "list"), "after migration"),
        (value(PERSON), DescribedState("s", "value", PERSON, PERSON), "incompatible"),
        (DescribedState("s", "value", LONG, PERSON), DescribedState("s", "value", LONG, TALLER), "incompatible"),
        (timers(TimerOf(STRING, PERSON)), timers(TimerOf(STRING, TALLER)), "incompatible"),
        (timers(TimerOf(STRING, VOID)), timers(TimerOf(STRING, VOID)), "as is"),
        (DescribedState("s", "split list", LONG), DescribedState("s", "union list", LONG), "incompatible"),
        (DescribedState("s", "split list", PERSON), DescribedState("s", "split list", TALLER), "after migration"),
        (
            DescribedState("s", "broadcast", LONG, map_key=STRING),
            DescribedState("s", "broadcast", LONG, map_key=LONG),
            "incompatible",
        ),
    ],
)
def test_a_change_of_a_state_has_flinks_verdict(before: DescribedState, after: DescribedState, verdict: str) -> None:
    saved, job = (dataclasses.replace(SAVED, states=(each,)) for each in (before, after))
    (_, state) = found(saved, job)
    assert (state.verdict, state.reason == "") == (verdict, verdict == "as is")


@pytest.mark.parametrize(
    ("backend", "verdict"), [("rocksdb", "incompatible"), ("heap", "after migration"), (None, "unknown")]
)
def test_only_the_heap_backend_migrates_keys_of_maps(backend: Any, verdict: str) -> None:
    saved, job = (
        dataclasses.replace(SAVED, states=(value(MapOf(kind, LONG), "map"),), backend=place)
        for kind, place in ((PERSON, None), (TALLER, backend))
    )
    assert found(saved, job)[1].verdict == verdict


def test_state_of_one_backend_is_not_restored_into_another() -> None:
    saved, job = (dataclasses.replace(SAVED, backend=each) for each in ("rocksdb", "heap"))
    assert found(saved, job)[0].verdict == "incompatible"
    assert found(dataclasses.replace(SAVED, backend=None), job)[0].verdict == "as is"


def test_an_operator_that_the_job_does_not_have_is_lost_with_its_state() -> None:
    (row,) = found(SAVED, None)
    assert row.verdict == "lost" and row.prevents and "--allowNonRestoredState" in row.reason
    generated = dataclasses.replace(SAVED, has_uid=False)
    assert "no uid" in found(generated, None)[0].reason
    assert found(dataclasses.replace(SAVED, holds_state=False), None)[0].verdict == "unused"


def test_states_that_one_side_has_are_new_or_unused() -> None:
    bare = dataclasses.replace(SAVED, states=())
    assert verdicts(found(bare, SAVED))["s"] == "new"
    assert verdicts(found(SAVED, bare))["s"] == "unused"
    other = dataclasses.replace(SAVED, id="b" * 32, label="other")
    assert [(each.operator, each.verdict) for each in found(SAVED, other)] == [("op", "lost"), ("other", "new")]


def test_what_is_not_read_is_never_fine() -> None:
    error = UnsupportedError(ErrorCode.FLINK_UNSUPPORTED, "x")
    broken, bare = dataclasses.replace(SAVED, error=error), dataclasses.replace(SAVED, states=())
    assert verdicts(found(broken, SAVED)) == {None: "unknown", "s": "as is"}
    assert verdicts(found(SAVED, dataclasses.replace(bare, error=error))) == {None: "unknown", "s": "unknown"}
    assert verdicts(found(dataclasses.replace(bare, error=error), SAVED)) == {None: "unknown", "s": "unknown"}
    assert found(dataclasses.replace(SAVED, custom="raw operator state"), SAVED)[0].verdict == "unknown"
    assert found(dataclasses.replace(SAVED, finished=True), SAVED)[0].verdict == "unknown"


# Descriptions in a file


@pytest.mark.parametrize(
    "run",
    [
        "rocksdb",
        "rocksdb-1.20",
        "types-rocksdb",
        "sql-types",
        "sql-top",
        "windows-rocksdb",
        "avro-rocksdb",
        "operator-rocksdb",
        "odd-names",
        "shapes-hashmap",
        "custom-rocksdb",
        "heap-timers",
    ],
)
def test_a_snapshot_fits_its_own_description(run: str) -> None:
    taken = source(run, manifest(run)["snapshots"][0]["checkpoint_id"])
    rows = taken.restored_as_described(taken.described(), "job.toml")
    assert rows == taken.restored_by(taken)
    assert [each for each in rows if each.prevents] == []


def test_an_edited_description_is_the_new_job() -> None:
    text = source("upgrade-rocksdb", 3).described()
    text = text.replace('kept = "int"', 'kept = "long"').replace("# max_parallelism = 128", "max_parallelism = 64")
    rows = source("upgrade-rocksdb", 3).restored_as_described(text, "job.toml")
    assert {each.state: each.verdict for each in rows if each.operator == "subscribers"} == {
        None: "incompatible",
        "one": "incompatible",
        "many": "incompatible",
        "by-name": "incompatible",
        "processing_user-timers": "as is",
        "event_user-timers": "as is",
    }


def test_a_description_may_be_short_and_in_json() -> None:
    text = json.dumps({"operators": {"s": {"uid": "subscribers", "key": "long"}, "n": {"uid": "later"}}})
    rows = source("upgrade-rocksdb", 3).restored_as_described(text, "job.json")
    seen = {(each.operator, each.state): each.verdict for each in rows}
    assert seen[("subscribers", None)] == "as is" and seen[("subscribers", "one")] == "unused"
    assert seen[("src", None)] == "lost" and seen[("n", None)] == "new"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found nothing"),
        ("operators = 1", "expected tables"),
        ("[operators.a]\nparallelism = 1", "neither uid nor id"),
        ('[operators.a]\nuid = "a"\nid = "' + "0" * 32 + '"', "leave out one"),
        ('[operators.a]\nid = "zz"', "32 hexadecimal digits"),
        ('[operators.a]\nuid = "a"\n[operators.b]\nuid = "a"', "two operators"),
        ('[operators.a]\nuid = "a"\nparallelism = 0', "from 1 on"),
        ('[operators.a]\nuid = "a"\nbackend = "forst"', "rocksdb or heap"),
        ('[operators.a]\nuid = "a"\nstrange = 1', "'strange'"),
        ('[operators.a]\nuid = "a"\n[operators.a.states.s]\nkind = "heap"\nvalue = "long"', "found kind"),
        ('[operators.a]\nuid = "a"\n[operators.a.states.s]\nkind = "value"', "found no value"),
        ('[operators.a]\nuid = "a"\n[operators.a.states.s]\nkind = "broadcast"\nvalue = "long"', "map_key"),
        ("{", "expected TOML or JSON"),
    ],
)
def test_a_description_that_is_wrong_says_where(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=r"job\.toml") as error:
        source("upgrade-rocksdb", 3).restored_as_described(text, "job.toml")
    assert error.value.code == ErrorCode.INVALID_OPTION and problem in str(error.value)


@pytest.mark.parametrize(
    "kind",
    [
        '"lomg"',
        "{}",
        '{type = "list"}',
        '{type = "basic", name = "lomg"}',
        '{type = "list", element = "long", more = 1}',
        '{type = "tuple", fields = 1}',
        '{type = "row data", row = "long"}',
        '{type = "enum", class_name = 1, constants = []}',
        "1",
    ],
)
def test_a_type_that_is_wrong_says_where(kind: str) -> None:
    text = f'[operators.a]\nuid = "a"\nkey = {kind}'
    with pytest.raises(InvalidInputError, match="operator a, key") as error:
        source("upgrade-rocksdb", 3).restored_as_described(text, "job.toml")
    assert error.value.code == ErrorCode.FLINK_TYPE


def test_every_type_of_a_serializer_has_a_name() -> None:
    """Apart from types that no serializer snapshot gives: of cells, of PyFlink, and a user's choice of columns."""
    every = {each for each in vars(flink_types).values() if isinstance(each, type) and issubclass(each, FlinkType)}
    cells = {
        getattr(flink_types, each)
        for each in ("Shown", "Joined", "LengthOf", "Prefix", "SpanOf", "RestOf", "SubclassBytes", "FlinkType")
    }
    cells.add(flink_types.KryoOf)  # described as an opaque type: the job's classes decide whether it is restored
    python = {each for each in every if each.__name__.startswith("Python")}
    assert set(description_file._CLASSES.values()) == every - cells - python


def test_a_type_within_types_without_end_is_refused() -> None:
    kind = '{"type": "list", "element": ' * 90 + '"long"' + "}" * 90
    with pytest.raises(InvalidInputError):
        source("sql", 3).restored_as_described(f'{{"operators": {{"a": {{"uid": "a", "key": {kind}}}}}}}', "job.json")


def test_state_of_the_second_api_is_not_restored_by_the_first() -> None:
    """Flink 2.3 fails with a ClassCastException; the other way it takes some states, and refuses those with a TTL."""
    forst, rocksdb = (source_at(fixture(f"async-{name}") / _newest(f"async-{name}")) for name in ("forst", "rocksdb"))
    there = {each.state: each.verdict for each in forst.restored_by(rocksdb) if each.state is not None}
    back = {each.state: each.verdict for each in rocksdb.restored_by(forst) if each.state is not None}
    keyed = {name for name, verdict in there.items() if verdict == "incompatible"}
    assert keyed
    assert {back[name] for name in keyed} <= {"unknown", "incompatible"}
    same = {each.verdict for each in forst.restored_by(forst)}
    assert same == {"as is"}


def _newest(run: str) -> str:
    return str(manifest(run)["snapshots"][-1]["path"])
