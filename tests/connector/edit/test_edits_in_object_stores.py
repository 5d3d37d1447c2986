"""Edits from, to and within a real S3 server: the target is that of a local edit, and the source is only read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import obstore
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.object_stores.clients import Client, client
from support.object_stores.proxy import Proxy, proxy_before
from support.object_stores.requests_seen import by_method
from support.object_stores.s3_server import S3Server
from support.parameters import mostly_slow

import statestore
from statestore.catalog.edits import object_copies
from statestore.catalog.edits.apply import EditProgress
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError
from statestore.formats.places import object_clients

OTHER = "other-states"
Made = dict[str, bytes]


@dataclass(frozen=True)
class Case:
    """State of an engine: its folder, what is uploaded, and an edit. ``varies``: names of files that hold the time."""

    place: Callable[[Path], Path]
    root: Callable[[Path], Path]
    text: str
    options: Callable[[Path], dict[str, Any]] = lambda folder: {}
    varies: tuple[str, ...] = ()


def snapshot_of(run: str, form: str) -> Path:
    found = [each["path"] for each in manifest(run)["snapshots"] if form in each["path"]]
    return fixture(run) / str(found[-1])


def ledger(folder: Path) -> Path:
    return (folder if (folder / "ledger").exists() else unpack("ledger", folder).parent) / "ledger/state/ledger"


def spark(name: str, text: str) -> Case:
    return Case(lambda _: checkpoint_path(name), lambda found: found, text)


CASES = {
    "deltas": spark("spark4.3.0-agg__hdfs", "DELETE FROM state WHERE key.k = 'key-06-éé'"),
    "rocksdb": spark("spark4.3.0-agg__rkcl", "UPDATE state SET value.count = 1 WHERE key.k = 'key-06-éé'"),
    "variables": spark("spark4.3.0-twsttl__rkcl", "UPDATE mp SET user_map_value.mv = 0 WHERE key.k IS NULL"),
    "savepoint": Case(
        lambda _: snapshot_of("operator-hashmap-snappy", "savepoint"),
        lambda found: found,
        'DELETE FROM "rules.seen"',
    ),
    "checkpoint": Case(
        lambda _: snapshot_of("sql", "chk-"),
        lambda found: found.parent,
        'DELETE FROM "GroupAggregate[4].accState"',
    ),
    "records": Case(
        ledger,
        lambda found: found,
        "DELETE FROM owners",
        lambda folder: {"stores_file": str(stores_file("ledger", folder / "stores.toml"))},
        ("ledger-owners-changelog.jsonl", "README.md"),
    ),
}
QUICK = ["rocksdb", "checkpoint", "records"]
"""The cases that always run."""


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    s3_server.make_bucket(OTHER)
    with proxy_before(s3_server.endpoint) as found:
        yield found


def upload(store: Client, folder: Path, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            obstore.put(store, f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def objects(store: Client, prefix: str) -> Made:
    found = [str(item["path"]) for batch in obstore.list(store, prefix=prefix) for item in batch]
    return {path.removeprefix(f"{prefix}/"): bytes(obstore.get(store, path).bytes()) for path in found}


def files(folder: Path) -> Made:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def comparable(made: Made, case: Case, address: str, before: Made) -> Made:
    """The files of a target that are the same wherever it lies: ``address`` is how its files name its folder.

    New table files of RocksDB have names of their own, which the zip has, too; those of ``before`` are the same.
    """
    varies = ("edit.json", *case.varies)
    return {
        path: data.replace(f"file:{address}".encode(), b"HERE").replace(address.encode(), b"HERE")
        if "_metadata/v2/" in path
        else data
        for path, data in made.items()
        if path not in varies and (before.get(path) == data or not path.endswith((".zip", ".sst")))
    }


def test_the_receipt_of_an_edit_without_changes_is_read(s3_server: S3Server, tmp_path: Path) -> None:
    """Its target holds no state, unlike one that is not whole yet."""
    case, target = CASES["records"], s3_server.warehouse("nothing/target")
    with statestore.edit(case.place(tmp_path), target, **case.options(tmp_path)):
        pass
    receipt = statestore.inspect(target).receipt()
    assert receipt is not None and receipt.states == ()
    obstore.put(client(s3_server), "nothing/target/edit.unfinished", b"{}")
    with pytest.raises(StateStoreError, match="NOTHING_HERE"):
        statestore.inspect(target)


@pytest.mark.parametrize("name", mostly_slow(CASES, QUICK))
def test_a_target_is_that_of_a_local_edit(s3_server: S3Server, proxy: Proxy, tmp_path: Path, name: str) -> None:
    case, store, other = CASES[name], client(s3_server), client(s3_server, OTHER)
    place = case.place(tmp_path)
    root, options = case.root(place), case.options(tmp_path)
    upload(store, root, f"{name}/source")
    before = objects(store, f"{name}/source")
    below = place.relative_to(root).as_posix()
    source = s3_server.warehouse(f"{name}/source/{below}".removesuffix("/."), endpoint=proxy.endpoint)

    def edited(one: str, into: str) -> None:
        with statestore.edit(one, into, **options) as edit:
            edit.sql(case.text)

    edited(str(place), str(tmp_path / "local"))
    expected = comparable(files(tmp_path / "local"), case, str(tmp_path / "local"), before)
    assert expected

    edited(str(place), s3_server.warehouse(f"{name}/up"))
    assert comparable(objects(store, f"{name}/up"), case, f"s3a://states/{name}/up", before) == expected
    proxy.clear()
    edited(source, s3_server.warehouse(f"{name}/same", endpoint=proxy.endpoint))
    assert comparable(objects(store, f"{name}/same"), case, f"s3a://states/{name}/same", before) == expected
    changing = [each for each in proxy.requests if each.method not in ("GET", "HEAD")]
    assert changing and not [each for each in changing if f"{name}/source" in unquote(each.path)]
    made = objects(store, f"{name}/same")
    new = sum(len(data) for data in made.values() if data not in before.values())
    copied = sum(len(data) for data in made.values()) - new
    sent = sum(each.sent for each in changing)
    assert sent < new + 0.5 * copied + 1_000 * len(changing), "files that stay are copied by the server"

    edited(source, s3_server.warehouse(f"{name}/bucket", OTHER, proxy.endpoint))
    assert comparable(objects(other, f"{name}/bucket"), case, f"s3a://{OTHER}/{name}/bucket", before) == expected
    proxy.clear()
    edited(source, str(tmp_path / "down"))
    assert comparable(files(tmp_path / "down"), case, str(tmp_path / "down"), before) == expected
    assert set(by_method(proxy.requests)) <= {"GET", "HEAD"}
    assert objects(store, f"{name}/source") == before


def test_what_is_too_large_for_a_copy_by_the_server_is_streamed(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lower limit than that of S3."""
    case, store = CASES["rocksdb"], client(s3_server)
    place = case.place(tmp_path)
    upload(store, place, "large/source")
    sizes = sorted(path.stat().st_size for path in place.rglob("*") if path.is_file())
    made, by_server = {}, {}
    for name, limit in (("streamed", sizes[len(sizes) // 2]), ("copied", sizes[-1])):
        monkeypatch.setattr(object_copies, "MOST_COPIED", limit)
        with statestore.edit(s3_server.warehouse("large/source"), s3_server.warehouse(f"large/{name}")) as edit:
            edit.sql(case.text)
        found = objects(store, f"large/{name}")
        made[name] = comparable(found, case, f"s3a://states/large/{name}", objects(store, "large/source"))
        assert edit.receipt is not None
        by_server[name] = edit.receipt.copied.shared
    assert made["streamed"] == made["copied"] and by_server["streamed"] < by_server["copied"]


def rows(at: str | Path) -> dict[str, Any]:
    found = statestore.inspect(at)["state"].scan().read_all().to_pylist()
    return {row["key"]["k"]: row["value"] for row in found}


def test_a_target_is_read_as_the_engine_reads_it(s3_server: S3Server, tmp_path: Path) -> None:
    place = checkpoint_path("spark4.3.0-agg__rkv2")
    target = s3_server.warehouse("read/mended")
    with statestore.edit(place, target) as edit:
        edit.sql("UPDATE state SET value.count = 3 WHERE key.k = 'key-00-'")
    before, after = (rows(at) for at in (place, target))
    assert after == {**before, "key-00-": {**before["key-00-"], "count": 3}}
    receipt = json.loads(objects(client(s3_server), "read/mended")["edit.json"])
    assert receipt["target"] == "s3://states/read/mended" and s3_server.secret_key not in json.dumps(receipt)
    with pytest.raises(InvalidInputError, match="TARGET_EXISTS"):
        statestore.edit(place, target)


def replaced(store: Client, path: str) -> None:
    """Put another object of the same size, most likely within the second in which the first one was put."""
    obstore.put(store, path, bytes(reversed(bytes(obstore.get(store, path).bytes()))))


CHANGES: dict[str, tuple[str, str, Callable[[Client, str], object], str]] = {
    "commit": (
        "deltas", "copying", lambda store, root: obstore.put(store, f"{root}/commits/99", b"v1"), "commits/99 is new"
    ),
    "copied": ("deltas", "verifying", lambda store, root: replaced(store, f"{root}/metadata"), "metadata was written"),
    "directory": (
        "records", "verifying", lambda store, root: obstore.put(store, f"{root}/0_0/lock", b"x"), "0_0/lock is new"
    ),
    "savepoint": ("savepoint", "verifying", lambda store, root: replaced(store, f"{root}/_metadata"), "was written"),
}  # fmt: skip
"""Changes of a source, when they come, and the words that tell of them: also of objects that the edit would not have
read or copied."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_meanwhile_makes_no_target(s3_server: S3Server, tmp_path: Path, change: str) -> None:
    """The next commit of a job that runs on is such a change."""
    name, step, make, told = CHANGES[change]
    case, store, prefix = CASES[name], client(s3_server), f"changing/{change}"
    place = case.place(tmp_path)
    upload(store, case.root(place), f"{prefix}/source")
    done: list[str] = []

    def listen(event: EditProgress) -> None:
        if event.step == step and not done:
            done.append(change)
            make(store, f"{prefix}/source")

    with (
        pytest.raises(ConflictError, match=told),
        statestore.edit(
            s3_server.warehouse(f"{prefix}/source"),
            s3_server.warehouse(f"{prefix}/target"),
            progress=listen,
            **case.options(tmp_path),
        ) as edit,
    ):
        edit.sql(case.text)
    assert done and objects(store, f"{prefix}/target") == {}


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_clients, "PAUSES", (0.0,))
    with (
        pytest.raises(StateStoreError, match=r"s3://nowhere/target: cannot list.*NoSuchBucket"),
        statestore.edit(checkpoint_path("spark4.3.0-agg__hdfs"), s3_server.warehouse("target", "nowhere")) as edit,
    ):
        edit.sql("DELETE FROM state WHERE key.k = 'key-06-éé'")


@pytest.mark.parametrize("kind", mostly_slow(["gcs", "azure"], ["azure"]))
def test_other_stores_get_the_same_target(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    case = CASES["deltas"]
    place, target = case.place(tmp_path), server.warehouse("edited/mended")
    for into in (str(tmp_path / "local"), target):
        with statestore.edit(place, into) as edit:
            edit.sql(case.text)
    store = client(server)
    expected = comparable(files(tmp_path / "local"), case, "", {})
    assert comparable(objects(store, "edited/mended"), case, "", {}) == expected
    with pytest.raises(InvalidInputError, match="TARGET_EXISTS"):
        statestore.edit(place, target)
