"""What users say about stores (options, TOML files, topologies), and the file that describes an application."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from support.kafka.real_applications import APPLICATIONS, application
from support.kafka.unpacked import is_on_disk, unpack
from support.paths import DATA

import statestore
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.store_settings import (
    Given,
    parse_topology,
    read_settings,
    read_topology,
    settings_of,
)


def described(folder: Path, text: str) -> str:
    file = folder / "app.toml"
    file.write_text(text)
    return str(file)


def test_options_count_before_the_file(tmp_path: Path) -> None:
    file = described(
        tmp_path, '[stores.counts]\nkind = "session"\nkey_serde = "long"\n[stores."a.b"]\nretention = 86400000\n'
    )
    settings = settings_of({"storesfile": file, "keyserde": "string"})
    assert settings.of("counts") == Given("session", "string")
    assert settings.of("a.b") == Given(None, "string", None, None, 86_400_000)
    assert settings.of("other") == Given(None, "string")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[stores.counts", "end of a table declaration"),
        ("[store.counts]", "'store'"),
        ("stores = 3", r"\[stores.NAME\]"),
        ("application = 3", "application"),
        ("[stores]\ncounts = 3", r"stores.counts is 3"),
        ("[stores.counts]\nkeyserde = 'long'", "did you mean key_serde"),
        ("[stores.counts]\nwindow_size = '60000'", "milliseconds"),
        ("[stores.counts]\nretention = 0", "milliseconds"),
        ("[stores.counts]\nkey_serde = 3", "a text"),
        ("[stores.counts]\nretention = true", "milliseconds"),
    ],
)
def test_a_wrong_file_is_named_with_the_entry(tmp_path: Path, text: str, found: str) -> None:
    file = described(tmp_path, text)
    with pytest.raises(InvalidInputError, match=rf"(?s)STORES_FILE.*app\.toml.*{found}"):
        read_settings(file)


def test_unknown_kinds_and_serdes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"KAFKA_STORE_KIND.*did you mean session"):
        settings_of({"kind": "sesion"})
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_SERDE"):
        settings_of({"keyserde": "strin"})
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_SERDE"):
        settings_of({"storesfile": described(tmp_path, "[stores.s]\nvalue_serde = 'x'")})
    for name, text in (("windowsize", "1m"), ("retention", "-1"), ("allowunflushed", "yes"), ("hideexpired", "1")):
        with pytest.raises(InvalidInputError, match="INVALID_OPTION"):
            settings_of({name: text})


def topology(name: str) -> str:
    with tarfile.open(DATA / "kafka" / f"{name}.tar.xz") as archive:
        file = archive.extractfile(f"{name}/topology.txt")
        assert file is not None
        return file.read().decode()


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_topology_names_the_stores_of_each_task(name: str) -> None:
    uses = parse_topology(f"INFO some log\n{topology(name)}\nmore of it")
    for store in application(name).stores():
        use = uses[store["name"]]
        tasks = {part.get("task") for part in store["partitions"]} - {None}
        assert use.is_global == (not tasks or tasks == {"global"})
        assert use.is_global or {task.split("_")[0] for task in tasks} == {str(use.subtopology)}
        assert use.processors
        assert use.topics


def test_a_file_without_a_topology_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"STORES_FILE.*found no store"):
        read_topology(described(tmp_path, "nothing"))
    with pytest.raises(InvalidInputError, match=r"STORES_FILE.*No such file"):
        read_topology(str(tmp_path / "none"))


def test_the_description_of_an_application_is_a_stores_file(tmp_path: Path) -> None:
    folder = unpack("ledger", tmp_path)
    state, file = folder / "state" / "ledger", tmp_path / "app.toml"
    found = statestore.inspect(state, topology_file=str(folder / "topology.txt"))
    file.write_text(found.describe())
    settings = read_settings(str(file))
    assert settings.application == "ledger"
    assert set(settings.by_store) == {store["name"] for store in application("ledger").stores() if is_on_disk(store)}
    given = statestore.inspect(state, stores_file=str(file))
    for store in found.tables():
        assert given.table(store).schema.equals(found.table(store).schema)
        assert given.about(store).facts["kind"].endswith("given")
        assert "sub-topology" in found.about(store).facts["topology"]


def test_other_state_has_nothing_to_describe(tmp_path: Path) -> None:
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()
    with pytest.raises(UnsupportedError, match="NOTHING_TO_DESCRIBE"):
        statestore.inspect(tmp_path).describe()
