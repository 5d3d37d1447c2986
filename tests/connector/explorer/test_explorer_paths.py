"""A folder of several places stands for all of them in the explorer, and other commands name them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import statestore
from statestore.connector.explorer.server.serve import opened_paths

CHECKPOINTS = Path(__file__).parents[2] / "data" / "spark" / "checkpoints.tar.xz"
CHECKPOINT = "spark4.3.0-join__rkcl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a warehouse, a checkpoint and others that hold no state."""
    found = tmp_path_factory.mktemp("places")
    with statestore.connect(found / "stores").create_store("s", key={"k": "bigint"}, value={"v": "string"}) as store:
        store.put(1, "a", 1)
        store.commit()
    (found / "notes").mkdir()
    (found / "read.me").write_text("here")
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(found, [each for each in archive if CHECKPOINT in each.name], filter="data")
    (found / "checkpoints" / CHECKPOINT).rename(found / "query")
    return found


def test_a_folder_stands_for_the_places_in_it(folder: Path) -> None:
    places = [str(folder / "query"), str(folder / "stores")]
    assert opened_paths([str(folder)], {}) == places
    assert opened_paths([places[1], str(folder)], {}) == [places[1], *places]


def test_a_place_stands_for_itself(folder: Path) -> None:
    for path in (folder / "stores", folder / "query", folder / "stores" / "s", folder / "notes", folder / "absent"):
        assert opened_paths([str(path)], {}) == [str(path)]


def test_an_error_names_what_can_be_opened(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*its folders .*: query, stores$"):
        statestore.inspect(folder)
    for name in "edcba":
        statestore.connect(tmp_path / name).create_store("s", key={"k": "bigint"}, value={"v": "string"}).close()
    with pytest.raises(statestore.NotFoundError, match=r": a, b, c and 2 more$"):
        statestore.inspect(tmp_path)
