"""Real applications of Kafka Streams that were stopped, got the records of an edit, and go on from the edited state."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from confluent_kafka import Producer
from support.command_line import run
from support.kafka.edits import (
    VERSION,
    edit_of,
    made_changelog,
    planned,
    records_in,
    rows_table,
    source_at,
    state_table,
    written,
)
from support.kafka.running.application import (
    Application,
    Description,
    Part,
    Row,
    Written,
    answers,
    running_application,
)
from support.kafka.running.application import rows as rows_of
from support.kafka.running.application_reads import stores_file_of
from support.kafka.running.broker import Broker, Record
from support.kafka.running.random_input import START_MS, random_records

import statestore
from statestore.catalog.edits.apply import apply_edit
from statestore.catalog.edits.receipt import read_receipt
from statestore.formats.edits import EditOptions, EditPlan
from statestore.formats.engine import Source
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.kafka.edits.record_files import program
from statestore.formats.places.folder import Folder

pytestmark = pytest.mark.slow
pytest_plugins = ["support.kafka.running.broker_fixtures"]

WINDOW_MS = 5_000
PARTS = (
    Part("stock", "key-value", "string", "long"),
    Part("prices", "table", "long", "string"),
    Part("audited", "headers-key-value", "string", "string"),
    Part("menu", "versioned", "string", "string", {"history_retention_ms": 10**9, "segment_interval_ms": 10**8}),
    Part("visits", "windowed-count", "string", "string", {"window_size_ms": WINDOW_MS, "grace_ms": 10**9}),
    Part("peaks", "window", "long", "integer", {"window_size_ms": WINDOW_MS, "retention_ms": 10**9}),
    Part("carts", "session-count", "integer", "long", {"gap_ms": 1_200, "grace_ms": 10**9}),
    Part("seen", "headers-window", "string", "long", {"window_size_ms": WINDOW_MS, "retention_ms": 10**9}),
    Part("stays", "headers-session", "integer", "string", {"session_size_ms": 4_000, "retention_ms": 10**9}),
)
MORE_WINDOWS = (
    Part("lately", "sliding-count", "string", "string", {"window_size_ms": WINDOW_MS, "grace_ms": 10**9}),
    Part("closing", "closing-count", "string", "string", {"window_size_ms": WINDOW_MS, "grace_ms": 10**9}),
    Part("leaving", "closing-session-count", "integer", "long", {"gap_ms": 1_200, "grace_ms": 10**9}),
)
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}
APPLICATIONS = (
    Description("till", PARTS),
    Description("vault", (*PARTS, *MORE_WINDOWS), config=EXACTLY_ONCE),
)
NEW_KEYS: Mapping[str, Any] = {"string": "a new key", "long": 77, "integer": 4242}
NEW_VALUES: Mapping[str, Any] = {"string": "repaired", "long": 1_000, "integer": 1_000}
RECORDS = 60


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("key", "start", "end") if name in row)


def keys_of(rows: list[Row]) -> list[Any]:
    return [row["key"] for row in rows]


def past_of(truth: Row, name: str, key: Any) -> list[Row]:
    """The versions and the answers as of moments that a versioned store has of a key."""
    [store] = [each for each in truth["stores"] if each["name"] == name]
    parts = store["partitions"]
    versions = [row for part in parts for row in part["versions"] if row["key"] == key]
    answered = [row for part in parts for row in part["as_of"] if row["key"] == key and row["answer"] is not None]
    return [*versions, *answered]


def answers_as_of(truth: Row) -> dict[tuple[Any, int], Any]:
    """Return the answers of the one versioned store of an application, by key and moment."""
    asked = [row for part in truth["stores"][0]["partitions"] for row in part["as_of"]]
    return {(row["key"], row["as_of"]): row["answer"] for row in asked}


def shown(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def edited(part: Part, rows: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows that go, rows that come, and all rows after: the first one is erased, the second repaired, one is new."""
    ordered = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    erased, repaired = ordered[0], ordered[1]
    serde = "long" if part.role.endswith("-count") else part.input_serde
    changed = {**repaired, "value": NEW_VALUES[serde]}
    new = {**repaired, "key": NEW_KEYS[part.key_serde], "value": NEW_VALUES[serde]}
    if "timestamp" in new:
        new["timestamp"] += 1
    return [erased, repaired], [changed, new], [*ordered[2:], changed, new]


def produce(folder: Path, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "produce.py"), address, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def put_input(application: Application) -> None:
    for name, part in application.description.inputs.items():
        application.put(name, random_records(part, name, 1, RECORDS, START_MS))


@pytest.mark.parametrize("description", APPLICATIONS, ids=lambda each: str(each.application_id))
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
def test_an_application_goes_on_from_the_edited_state(
    programs: str, broker: Broker, tmp_path: Path, description: Description, wiped: bool
) -> None:
    named = Description(
        f"{description.application_id}-{'wiped' if wiped else 'kept'}", description.parts, 2, description.config
    )
    with running_application(programs, tmp_path, broker, named) as application:
        put_input(application)
        application.wait()
        earlier = application.truth()
        before = rows_of(earlier)
        application.close()

        source = source_at(application.state_directory, stores_file_of(application))
        edits, after = [], {}
        for part in description.parts:
            removed, added, after[part.name] = edited(part, before[part.name])
            tables = (rows_table(source, part.name, rows) for rows in (removed, added))
            edits.append(edit_of(source, part.name, *tables))
        produced = description.config == EXACTLY_ONCE
        to_broker = {"produce": f"kafka://{broker.address}", "erase_history": "true"}
        named_settings = to_broker if produced else {"partitions": "2"}
        plan = planned(source, *edits, settings=named_settings)
        target = tmp_path / "target"
        if produced:
            receipt = apply_edit(source, VERSION, edits, target, EditOptions(settings=named_settings))
            assert len([note for note in receipt.notes if note.startswith("Produced to")]) == len(description.parts)
            kept = read_receipt(Folder(pafs.LocalFileSystem(), str(target)))
            assert kept is not None and kept.notes == receipt.notes
        else:
            written(plan, target)
        # What the target shows before anything is produced is what the application has afterwards.
        seen = plan.opened(str(target))
        for part in description.parts:
            wanted = rows_table(seen, part.name, after[part.name]).to_pylist()
            assert sorted(map(repr, state_table(seen, part.name).to_pylist())) == sorted(map(repr, wanted))

        if not produced:
            done = produce(target, broker.address)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(f"{3 * len(description.parts)} records written")
        if wiped:
            [note] = [note for note in plan.notes if "delete these folders" in note]
            tasks = list(application.state_directory.glob("*_*"))
            assert tasks and all(f"{task}" in note for task in tasks)
            for task in tasks:
                shutil.rmtree(task)
        [record] = [each for each in records_in(target, application.changelog("menu")) if each["key"] == b"a new key"]
        # A versioned store is asked for the keys that were put.
        put = Record(NEW_KEYS["string"], NEW_VALUES["string"], record["timestamp"])
        application.written["menu"].append(Written(record["partition"], 0, put))

        application.start()
        application.wait()
        truth = application.truth()
        found = rows_of(truth)
        [erased] = [key for key in keys_of(before["menu"]) if key not in keys_of(after["menu"])]
        assert past_of(earlier, "menu", erased)
        if produced and wiped:  # a store that was kept does not find its earlier versions after a restart
            assert past_of(truth, "menu", erased) == []
        assert {name: shown(rows) for name, rows in found.items()} == {
            name: shown(rows) for name, rows in after.items()
        }

        # It goes on: a count of an edited window continues from the value of the edit.
        [window] = [row for row in after["visits"] if row["key"] == NEW_KEYS["string"]]
        application.put("visits", [Record(NEW_KEYS["string"], "x", window["start"] + 1)])
        application.put("prices", [Record(NEW_KEYS["long"], "again", START_MS + 10**7)])
        application.wait()
        last = answers(application)
        assert [row["value"] for row in last["visits"] if key_of(row) == key_of(window)] == [1_001]
        assert [row["value"] for row in last["prices"] if row["key"] == NEW_KEYS["long"]] == ["again"]


def test_a_versioned_store_answers_as_its_past_was_edited(programs: str, broker: Broker, tmp_path: Path) -> None:
    """One past version is repaired and another one let go; every other answer as of any moment stays as it was."""
    description = Description("kitchen", tuple(part for part in PARTS if part.role == "versioned"), 2, EXACTLY_ONCE)
    with running_application(programs, tmp_path, broker, description) as application:
        put_input(application)
        application.wait()
        deleted = keys_of(answers(application)["menu"])[0]
        application.put("menu", [Record(deleted, None, START_MS + 10**7)])
        application.wait()
        earlier = application.truth()
        application.close()
        before, stores = answers_as_of(earlier), str(stores_file_of(application))
        past = statestore.inspect(application.state_directory, stores_file=stores)["menu.past"]
        live = keys_of(rows_of(earlier)["menu"])
        of_keys = {row["key"]: row for row in past.scan().to_arrow().to_pylist()}
        [repaired, *_], [gone, *_] = (
            [row for key, row in of_keys.items() if (key in live) == is_live] for is_live in (True, False)
        )  # the newest of one key is a version, of the other one a delete
        at_once = {"produce": f"kafka://{broker.address}"}
        with statestore.edit(
            application.state_directory, tmp_path / "target", settings=at_once, stores_file=stores
        ) as edit:
            where = (
                "key = '{key}' AND valid_from = TIMESTAMPTZ '{valid_from}'".format(**row) for row in (repaired, gone)
            )
            edit.sql(f"""UPDATE "menu.past" SET value = 'repaired' WHERE {next(where)}""")
            edit.sql(f"""DELETE FROM "menu.past" WHERE {next(where)}""")
        assert edit.receipt is not None and any("Delete the state directories" in each for each in edit.receipt.notes)
        for task in application.state_directory.glob("*_*"):
            shutil.rmtree(task)
        application.start()
        application.wait()
        truth = application.truth()
    expected = dict(before)
    for row, value in ((repaired, "repaired"), (gone, None)):
        begin = round(row["valid_from"].timestamp() * 1000)
        own = [at for at, answer in before.items() if at[0] == row["key"] and answer and answer["valid_from"] == begin]
        assert own
        expected |= {at: None if value is None else {**before[at], "value": value} for at in own}
    assert answers_as_of(truth) == expected
    assert {name: shown(rows) for name, rows in rows_of(truth).items()} == {
        name: shown(rows) for name, rows in rows_of(earlier).items()
    }


# The program that produces the records


def planned_of_broker(application: Application, folder: Path) -> tuple[EditPlan, list[Row]]:
    """An edit of a table, read from the broker, and the rows that it makes; its files are in the folder."""
    [part] = application.description.parts
    topic, before = application.changelog(part.name), answers(application)[part.name]
    application.close()
    source = source_at(f"kafka://{application.broker.address}", stores_file_of(application))
    removed, added, after = edited(part, before)
    tables = (rows_table(source, topic, rows) for rows in (removed, added))
    plan = planned(source, edit_of(source, topic, *tables))
    written(plan, folder)
    return plan, after


@pytest.fixture(name="table")
def table_application(
    programs: str, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Application]:
    """A running application with one table in three partitions."""
    name = re.sub("[^a-z]+", "-", request.node.name.removeprefix("test_"))[-40:].strip("-")
    config = getattr(request, "param", EXACTLY_ONCE)
    with running_application(programs, tmp_path, broker, Description(name, PARTS[1:2], 3, config)) as application:
        put_input(application)
        application.wait()
        yield application


def command_in(folder: Path) -> list[str]:
    """The options that the instructions name."""
    lines = (folder / "README.md").read_text("utf-8").splitlines()
    [command] = [line.split() for line in lines if line.startswith("    python produce.py HOST:PORT")]
    return command[3:]


def test_the_command_of_the_instructions_writes_once(table: Application, tmp_path: Path) -> None:
    """A topic that has gained records since is not written to."""
    plan, after = planned_of_broker(table, tmp_path / "target")
    topic = table.changelog("prices")
    seen = plan.opened(str(tmp_path / "target"))
    wanted = sorted(map(repr, rows_table(seen, topic, after).to_pylist()))
    assert sorted(map(repr, state_table(seen, topic).to_pylist())) == wanted

    options = command_in(tmp_path / "target")
    assert options[0] == "--expect-end"
    done = produce(tmp_path / "target", table.broker.address, *options)
    assert (done.returncode, done.stdout) == (0, f"3 records written to {topic}\n"), done.stderr
    count = len(table.broker.records(topic))
    again = produce(tmp_path / "target", table.broker.address, *options)
    assert again.returncode == 1 and "make the edit anew; nothing was written" in again.stderr
    assert len(table.broker.records(topic)) == count

    table.start()
    table.wait()
    assert shown(answers(table)["prices"]) == shown(after)


def test_an_open_transaction_is_found_before_anything_is_written(table: Application, tmp_path: Path) -> None:
    planned_of_broker(table, tmp_path / "target")
    topic, settings = table.changelog("prices"), {"bootstrap.servers": table.broker.address}
    other = Producer({**settings, "transactional.id": "another"})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(topic, b"v", b"k", partition=1)
    other.flush(60)
    before = len(table.broker.records(topic))
    done = produce(tmp_path / "target", table.broker.address, *command_in(tmp_path / "target"))
    other.abort_transaction(60)
    assert done.returncode == 1 and "partition 1 of" in done.stderr
    assert len(table.broker.records(topic)) == before


def test_all_records_are_written_or_none(table: Application, tmp_path: Path) -> None:
    planned_of_broker(table, tmp_path / "target")
    topic = table.changelog("prices")
    before = len(table.broker.records(topic))
    with (tmp_path / "target" / f"{topic}.jsonl").open("a", encoding="utf-8") as file:
        large = {"partition": 0, "timestamp": START_MS, "key": "61", "value": "00" * (4 << 20), "headers": []}
        file.write(json.dumps(large) + "\n")
    done = produce(tmp_path / "target", table.broker.address)
    assert done.returncode != 0 and "too large" in done.stderr.lower()
    assert len(table.broker.records(topic)) == before


def test_a_topic_that_is_not_there_is_named(broker: Broker, tmp_path: Path) -> None:
    target = tmp_path / "target"
    made_changelog(target, [(0, START_MS, b"k", b"v")], "no-such-changelog")
    (target / "produce.py").write_text(program(), "utf-8")
    done = produce(target, broker.address)
    assert done.returncode == 1 and "topic no-such-changelog" in done.stderr
    assert "nothing was written" in done.stderr


# Records that the edit itself produces


def edited_into(
    target: Path,
    broker: Broker,
    source: Source,
    state: str,
    removed: list[Row],
    added: list[Row],
    settings: Mapping[str, str] | None = None,
) -> None:
    """Apply an edit that produces its records to the broker."""
    edit = edit_of(source, state, *(rows_table(source, state, rows) for rows in (removed, added)))
    given = {"produce": f"kafka://{broker.address}", **(settings or {})}
    apply_edit(source, VERSION, [edit], target, EditOptions(settings=given))


STREAMS_GROUP = {"group.protocol": "streams"}
RUNS, UNSEEN = r"group .* has \d members.*the application runs", r"group .* has a rebalance protocol.*stopped=true"


@pytest.mark.parametrize(
    ("table", "refusal", "settings"),
    [(EXACTLY_ONCE, RUNS, {}), (STREAMS_GROUP, UNSEEN, {"stopped": "true"})],
    indirect=["table"],
    ids=["classic", "streams"],
)
def test_records_are_produced_only_while_the_topic_is_as_it_was_read(
    table: Application, tmp_path: Path, refusal: str, settings: dict[str, str]
) -> None:
    topic, broker, stores = table.changelog("prices"), table.broker, stores_file_of(table)
    before = answers(table)["prices"]
    removed, added, after = edited(table.description.parts[0], before)
    in_topic = source_at(f"kafka://{broker.address}", stores)
    with pytest.raises(InvalidInputError, match=f"EDIT_REFUSED.*{refusal}"):
        edited_into(tmp_path / "no", broker, in_topic, topic, removed, added)
    table.close()

    directory = source_at(table.state_directory, stores)
    edited_into(tmp_path / "first", broker, directory, "prices", removed, added, settings)
    count = len(broker.records(topic))
    # The directory does not know the records of its first edit, and the topic does.
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*partition \d of .* has records from offset \d+ on"):
        edited_into(tmp_path / "no", broker, directory, "prices", removed, added, settings)
    assert len(broker.records(topic)) == count and not (tmp_path / "no").exists()
    in_topic = source_at(f"kafka://{broker.address}", stores)
    edited_into(tmp_path / "second", broker, in_topic, topic, [after[0]], [], settings)
    more = edited_in_files(table, tmp_path, after[1]["key"], after[2]["key"], settings)
    table.start()
    table.wait()
    assert shown(answers(table)["prices"]) == shown([{**row, **more.get(row["key"], {})} for row in after[1:]])


def edited_in_files(
    table: Application, folder: Path, first: int, second: int, settings: Mapping[str, str]
) -> dict[int, Row]:
    """Edit one key in a copy of the broker's log, on the command line, and another one in an export of the topic by
    `statestore.edit`; return what they become. Both produce their records."""
    topic, address, stores = table.changelog("prices"), f"kafka://{table.broker.address}", stores_file_of(table)
    for partition in range(table.description.partitions):
        log = table.broker.log_directory(topic, partition)
        shutil.copytree(log, folder / "log" / log.name)
    flags = [f"--{name}" for name in settings]
    statement = f"""UPDATE "{topic}" SET value = 'by command' WHERE key = {first}"""
    answer = run(
        "edit",
        folder / "log",
        "--into",
        folder / "third",
        "--stores-file",
        stores,
        "--produce",
        address,
        *flags,
        statement,
    )
    assert answer.code == 0 and "and read again: 1 records" in answer.err, answer.err

    (folder / "export").mkdir()
    lines = [json.dumps({**row, "headers": [], "topic": topic}) for row in table.broker.records(topic)]
    (folder / "export" / f"{topic}.jsonl").write_text("\n".join(lines))
    given = {
        "produce": address,
        "partitions": table.description.partitions,
        "records": folder / "all.jsonl",
        **settings,
    }
    with statestore.edit(folder / "export", folder / "fourth", settings=given, stores_file=str(stores)) as edit:
        edit.sql(f"""UPDATE "{topic}" SET value = 'by export' WHERE key = {second}""")
    assert edit.receipt is not None and any("and read again: 1 records" in note for note in edit.receipt.notes)
    assert len((folder / "all.jsonl").read_text().splitlines()) == 1
    return {first: {"value": "by command"}, second: {"value": "by export"}}


def test_a_target_whose_records_were_not_taken_says_how_they_are_produced(table: Application, tmp_path: Path) -> None:
    """A record that the broker does not take leaves the topic as it was; the command of the error is refused, too."""
    topic, broker, target = table.changelog("prices"), table.broker, tmp_path / "target"
    before = answers(table)["prices"]
    table.close()
    source = source_at(f"kafka://{broker.address}", stores_file_of(table))
    count = len(broker.records(topic))
    large = {**before[0], "value": "x" * (4 << 20)}
    with pytest.raises(StateStoreError, match=r"EDIT_NOT_DELIVERED.*nothing was produced.*[Tt]oo large") as found:
        edited_into(target, broker, source, topic, [before[0]], [large])
    assert len(broker.records(topic)) == count and (target / "edit.json").exists()
    command = found.value.message.rpartition("type: ")[2].split()
    assert command[:2] == ["python", f"{target}/produce.py"]
    again = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 1 and "too large" in again.stderr.lower()
    assert len(broker.records(topic)) == count
