"""Stores and tables by name, and what they show of themselves in a terminal and in a notebook."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.object_stores.doubles import memory_location
from support.object_stores.request_record import recorded

import statestore

NAME = "<b>prices"
COLUMNS: dict[str, Any] = {"key": {"<i>": "string"}, "value": {"price": "double"}}
KINDS: dict[str, dict[str, Any]] = {
    "versioned": {"history_retention": "1 day"},
    "key_value": {},
    "window": {"retention": "1 hour", "window_size": "1 minute", "time_ordered": True},
    "join_window": {"retention": 1, "window_before": "1 minute"},
    "session": {"retention": "1 hour"},
    "keyed": {},
}


@pytest.fixture
def catalog(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path / "warehouse")


@pytest.fixture(params=KINDS)
def described(request: pytest.FixtureRequest) -> dict[str, Any]:
    columns = {"key": COLUMNS["key"]} if request.param == "keyed" else COLUMNS
    return {"kind": request.param, **columns, **KINDS[request.param]}


def test_a_cell_runs_twice(catalog: statestore.Catalog, described: dict[str, Any]) -> None:
    with refused("STORE_NOT_FOUND", "if_missing='create'"):
        catalog.store("s", **described)
    for _ in range(2):
        with catalog.store("s", **described, if_missing="create") as store:
            assert store.spec.kind == described["kind"]
    catalog.store("s").close()
    with refused("STORE_EXISTS", "key is (<i> string), and (<i> bigint) was given"):
        catalog.store("s", key={"<i>": "bigint"})
    for name in KINDS[described["kind"]]:
        catalog.store("s", **{name: described[name]}).close()
    with refused("STORE_EXISTS", "serde is natural, and 'kafka' was given"):
        catalog.store("s", serde="kafka", if_missing="create")


def test_what_differs_is_refused_with_both(catalog: statestore.Catalog) -> None:
    catalog.store("s", **COLUMNS, history_retention="1 day", if_missing="create").close()
    with refused("STORE_EXISTS", "history_retention is 86400000, and '2 days' was given"):
        catalog.store("s", history_retention="2 days")
    with refused("STORE_EXISTS", "kind is versioned, and session was given"):
        catalog.store("s", "session", retention="1 day", if_missing="create")
    with refused("STORE_EXISTS", "value is (price double), and (price double, n int) was given"):
        catalog.store("s", value={"price": "double", "n": "int"})
    with refused("UNKNOWN_OPTION"):
        catalog.store("s", retention="1 day")
    with refused("INVALID_OPTION", "error, create"):
        catalog.store("s", if_missing="make")  # type: ignore[arg-type]
    with refused("MISSING_OPTION", "key and value"):
        catalog.store("other", if_missing="create")
    with refused("STORE_EXISTS", "if_missing='create'"):
        catalog.create_store("s", **COLUMNS)


def test_stores_and_tables_have_names(catalog: statestore.Catalog, tmp_path: Path) -> None:
    assert (list(catalog), len(catalog), bool(catalog), "s" in catalog) == ([], 0, True, False)
    with catalog.create_store("s", **COLUMNS) as store:
        store.put("a", 1.0, "2024-05-01T09:30Z")
        store.commit()
    with catalog["s"] as opened:
        assert opened.get("a").value == 1.0
    warehouse = statestore.inspect(tmp_path / "warehouse")
    for named in (catalog, warehouse):
        assert (list(named), len(named), "s" in named, "t" in named, 7 in named) == (["s"], 1, True, False, False)
        assert named._ipython_key_completions_() == ["s"]
        with pytest.raises(KeyError):
            named["t"]
    assert warehouse["s"].scan().to_arrow().num_rows == 1
    assert "s$versions" in warehouse and "s$nothing" not in warehouse


def shown(item: Any) -> str:
    """The text of an object, whose page has no markup of its names."""
    page = item._repr_html_()
    assert "<i>" not in page and "<b>prices" not in page and "secret" not in page
    text = repr(item)
    assert "cannot be shown" not in text and "cannot be shown" not in page
    return text


def test_every_store_shows_itself(catalog: statestore.Catalog, described: dict[str, Any]) -> None:
    store = catalog.create_store(NAME, **described)
    text = shown(store)
    assert f"{described['kind']} store '{NAME}' at " in text and "<i> string" in text
    if described["kind"] != "keyed":
        assert "price double" in text and "versions: 0 to 0" in text
        assert "versions: 0 to 0" in shown(statestore.inspect(catalog.root)[NAME])
    assert NAME in shown(catalog)
    shown(statestore.inspect(catalog.root))
    (catalog.root / NAME / "store.json").unlink()
    assert "cannot be read: [STORE_" in shown(store)
    shutil.rmtree(catalog.root / NAME)
    assert "cannot be read: [" in shown(store)
    store.close()
    assert "closed: " in shown(store)


def test_a_store_shows_its_newest_version_and_reads_no_rows(
    catalog: statestore.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalog.create_store(NAME, **COLUMNS) as store, catalog[NAME] as other:
        store.put("a", 1.0, "2024-05-01T09:30Z")
        store.commit()
        for path in (catalog.root / NAME / "segments").iterdir():
            path.write_bytes(b"damaged")
        for each in (store, other, statestore.inspect(catalog.root)[NAME]):
            text = shown(each)
            assert "versions: 0 to 1" in text and "newest moment: 2024-05-01T09:30:00.000Z" in text
            assert "rows: 1, " in text


def test_results_show_themselves(catalog: statestore.Catalog) -> None:
    with catalog.create_store(NAME, key={"<i>": "string"}, value={"v": "string"}) as store:
        result = store.put("a", "<i>", "2024-05-01T09:30Z")
        store.put("a", "2", "2024-05-01T10:30Z")
        store.commit()
        record = store.get("a", as_of="2024-05-01T10:00Z")
        assert "accepted=True" in shown(result)
        assert shown(record) == (
            "Record(value='<i>', valid_from=1714555800000 (2024-05-01T09:30:00.000Z), "
            "valid_to=1714559400000 (2024-05-01T10:30:00.000Z))"
        )
        assert record is not None and "2024-05-01T10:30:00.000Z" in record._repr_html_()
        assert f"verification of '{NAME}': ok" in shown(catalog.verify(NAME))
        next((catalog.root / NAME / "segments").iterdir()).unlink()
        assert "problem" in shown(catalog.verify(NAME))


@pytest.fixture
def backend(catalog: statestore.Catalog) -> Iterator[Any]:
    with catalog.create_store(NAME, kind="keyed", key={"<i>": "string"}) as store:
        yield store.backend()


def test_a_backend_shows_its_states(backend: Any) -> None:
    backend.value_state("count", "bigint")
    assert "states: count" in shown(backend)
    backend.dispose()
    assert "closed" in shown(backend)


def test_texts_cost_at_most_one_request_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store looks whether it is still there; a table and a warehouse say what they know."""
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    location = memory_location()
    catalog = statestore.Catalog(location)
    with (
        catalog.create_store(NAME, **COLUMNS) as store,
        catalog.create_store("k", "keyed", key={"<i>": "string"}) as keyed,
    ):
        store.put("a", 1.0, 0)
        store.commit()
        warehouse = statestore.inspect(location.uri)
        items = {catalog: 0, warehouse: 0, warehouse[NAME]: 0, keyed: 0, store: 1}
        with recorded() as record:
            for item, most in items.items():
                record.clear()
                assert NAME in repr(item) or item in (catalog, keyed)
                assert len(record) <= most, (item, str(record))
        catalog.drop_store(NAME)
        assert "cannot be read: [STORE_REPLACED]" in shown(store)
