"""Scripts of a report are put together once, and never read where they are not whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.connector.report.vega_scripts import vega_scripts

vl_convert = pytest.importorskip("vl_convert")
Ask = Callable[[], str]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List what is put together, a text for each call."""
    found: list[str] = []

    def bundle(snippet: str) -> str:
        found.append(f"{snippet} // {len(found)} é")
        return found[-1]

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return found


def asked() -> str:
    """The scripts as a new process has them."""
    return vega_scripts.__wrapped__()


def test_scripts_are_put_together_once(made: list[str], tmp_path: Path) -> None:
    assert [asked(), asked()] == [made[0]] * 2
    assert len(made) == 1
    assert len(list((tmp_path / "cache").rglob("vega-*"))) == 1


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data.replace(b"//", b"/*")])
def test_damaged_scripts_are_made_anew(made: list[str], tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    asked()
    (kept,) = (tmp_path / "cache").rglob("vega-*.js")
    kept.write_bytes(damage(kept.read_bytes()))
    assert [asked(), asked()] == [made[1]] * 2
    assert len(made) == 2


def test_scripts_of_another_version_are_others(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked()
    monkeypatch.setattr("statestore.connector.report.vega_scripts.version", lambda package: "0")
    assert asked() == made[1]


def test_without_a_private_folder_nothing_is_kept(made: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o777)
    for place in (tmp_path / "cache" / "statestore", tmp_path / "temporary"):
        place.write_text("no folder")
    assert [asked(), asked()] == made
    assert len(made) == 2
