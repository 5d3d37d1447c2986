"""Settings of edits: which engines offer which, and what a user may give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.formats import edit_settings
from statestore.formats.edit_settings import checked_settings, settings_of_engines
from statestore.formats.engine_offer import EngineOption
from statestore.formats.engines import built_in_engines, engine_named
from statestore.formats.errors import InvalidInputError

OFFERED = (
    EngineOption("depth", "int", "how deep"),
    EngineOption("loud", "bool", "whether it is heard"),
    EngineOption("colour", "text", "red or blue"),
)
ENGINE = replace(engine_named("spark"), name="toy", expects="box of toys", edit_settings=OFFERED)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({}, {}),
        ({"depth": 64}, {"depth": "64"}),
        ({"depth": "064"}, {"depth": "64"}),
        ({"depth": -1}, {"depth": "-1"}),
        ({"loud": True}, {"loud": "true"}),
        ({"loud": "False"}, {"loud": "false"}),
        ({"colour": "red"}, {"colour": "red"}),
        ({"colour": Path("a/b")}, {"colour": "a/b"}),
    ],
)
def test_values_become_texts(given: dict[str, Any], texts: dict[str, str]) -> None:
    assert checked_settings(ENGINE, given, "here") == texts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": True}, "option depth is True; expected a whole number"),
        ({"depth": "many"}, "option depth is 'many'; expected a whole number"),
        ({"depth": 1.5}, "option depth is 1.5; expected a whole number"),
        ({"depth": None}, "option depth is None; expected a whole number"),
        ({"loud": 1}, "option loud is 1; expected True or False"),
        ({"loud": "yes"}, "option loud is 'yes'; expected True or False"),
        ({"colour": False}, "option colour is False; expected a text"),
        ({"colour": ""}, "option colour is ''; expected a text"),
        ({"depht": 1}, "edits of here, a box of toys, which has the settings colour, depth, loud; did you mean depth?"),
        ({"partitions": 1}, "option partitions is no setting for edits of here, a box of toys, which has the settings"),
        ([("depth", 1)], "settings is .*; expected a dict of names and values"),
    ],
)
def test_other_settings_and_values_are_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        checked_settings(ENGINE, given, "here")
    assert error.value.code == "INVALID_OPTION"


def test_an_engine_without_settings_says_so() -> None:
    with pytest.raises(InvalidInputError, match="which has none; leave it out"):
        checked_settings(replace(ENGINE, edit_settings=()), {"depth": 1}, "here")


def test_a_name_of_several_engines_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(ENGINE, name="other", edit_settings=(EngineOption("depth", "text", "what lies below"),))
    monkeypatch.setattr(edit_settings, "engines", lambda: [ENGINE, other])
    found = settings_of_engines()
    assert found["depth"] == EngineOption("depth", "text", "toy: how deep; other: what lies below")
    assert found["loud"] == EngineOption("loud", "bool", "toy: whether it is heard")


def test_meanings_of_settings_are_alike() -> None:
    """They stand behind the name of their engine, in one list."""
    meanings = [setting.meaning for engine in built_in_engines() for setting in engine.edit_settings]
    assert len(meanings) > 10
    assert [each for each in meanings if each[0].isupper() or each.endswith(".")] == []
