"""Settings of an edit that produces its records: brokers, and a file with the client's settings for TLS and SASL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from support.command_line import run
from support.kafka.edits import TOPIC, Logged, made_changelog
from support.paths import TESTS

from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.broker.connection import BrokerAddress, administrator, producer_settings
from statestore.formats.kafka.edits.delivery import delivery_of

NOBODY, SECRET = "kafka://127.0.0.1:1", "correct horse"
SECURE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "mender",
    "sasl.password": SECRET,
    "ssl.ca.location": str(TESTS / "data" / "kafka" / "registry-localhost.pem"),
}
SOURCE: list[Logged] = [(0, 1000, b"a", b"5")]
FLAGS = ("--kind", "timestamped-key-value", "--key-serde", "string", "--value-serde", "string")


def config(folder: Path, settings: dict[str, str]) -> Path:
    file = folder / "private.properties"
    file.write_text("# of the broker\n\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    return file


def test_settings_for_tls_and_sasl_reach_both_clients(tmp_path: Path) -> None:
    file = config(tmp_path, SECURE)
    found = delivery_of({"produce": NOBODY, "produce_config": str(file)}, None, None)
    assert found is not None and SECRET not in repr(found) and "private" not in repr(found)
    given: dict[str, Any] = producer_settings(found.address)
    assert {name: given[name] for name in SECURE} == SECURE and given["bootstrap.servers"] == "127.0.0.1:1"
    confluent_kafka.Producer(given)
    administrator(found.address)


def test_the_settings_by_which_the_topic_was_read_count_for_the_same_brokers() -> None:
    read = BrokerAddress("127.0.0.1:1", "/some/file")
    same, other = (delivery_of({"produce": each}, None, read) for each in (NOBODY, "kafka://127.0.0.1:2"))
    assert same is not None and other is not None
    assert (same.address.config, other.address.config) == ("/some/file", None)


@pytest.mark.parametrize("name", ["produce_config", "stopped"])
def test_settings_of_a_delivery_go_with_produce(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"INVALID_OPTION.*setting {name} goes with produce"):
        delivery_of({name: "true"}, None, None)


@pytest.mark.parametrize("wrong", ["sasl.mechanism", "sasl.pasword"])
def test_a_wrong_setting_is_named_on_the_command_line_and_no_value(tmp_path: Path, wrong: str) -> None:
    source = made_changelog(tmp_path / "changelogs", SOURCE)
    file = config(tmp_path, {**SECURE, wrong: SECRET})
    given = ("--produce", NOBODY, "--produce-config", file, "--partitions", "1")
    answer = run("edit", source, "--into", tmp_path / "target", *given, *FLAGS, f'DELETE FROM "{TOPIC}"')
    assert answer.code == 2 and "setting produce_config: the client refuses setting" in answer.err
    assert wrong in answer.err and SECRET not in answer.err and "private" not in answer.err
    assert not (tmp_path / "target").exists()
