"""Addresses and settings of brokers, and errors where there is no broker and no client library."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.formats.kafka.broker.broker_log import BrokerLog
from statestore.formats.kafka.broker.connection import BrokerAddress, address_of
from statestore.formats.places.locations import parse_location

SECRET = "correct horse"
NOBODY = "kafka://127.0.0.1:1"  # a port on which nothing listens


@pytest.mark.parametrize("text", ["kafka://a:1", "kafka://a:1/", "kafka://a:1/app-stock-changelog"])
def test_an_address(text: str) -> None:
    assert str(address_of(parse_location(text), None)) == "kafka://a:1"


def test_several_brokers_and_a_config_that_is_not_shown() -> None:
    assert address_of(parse_location("kafka://a,[::1]:2/t"), None).servers == "a,[::1]:2"
    address = address_of(parse_location("kafka://a:1,b:2/t"), "/etc/secret.properties")
    assert address.servers == "a:1,b:2"
    assert "secret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "text",
    [
        "kafka://",
        "kafka:/topic",
        "kafka://a:1,,b:2",
        "kafka://me:pw@a:1/t",
        "kafka://a:1?x=pw",
        "kafka://a:port",
        "kafka://a:1,b:99999",
        "kafka://a:",
        "kafka://[::1/t",
    ],
)
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"INVALID_LOCATION.*kafka://host:port") as found:
        statestore.inspect(text)
    assert "pw" not in str(found.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(statestore.UnsupportedError, match=r"KAFKA_NOT_INSTALLED.*statestore\[kafka\]"):
        statestore.inspect(NOBODY)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"sasl.pasword={SECRET}", "sasl.pasword"),
        (f"security.protocol={SECRET}", "security.protocol"),
        (f"{SECRET}", "line 1"),
        (f"# comment\n\nplugin.library.paths={SECRET}", "line 3"),
        (f"group.id={SECRET}", "group.id"),
    ],
)
def test_a_wrong_setting_is_named_and_its_value_is_not(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "private.properties"
    file.write_text(text)
    with pytest.raises(statestore.InvalidInputError, match="INVALID_OPTION") as found:
        statestore.inspect(NOBODY, consumer_config=str(file))
    assert named in str(found.value)
    assert SECRET not in str(found.value) and "private" not in str(found.value)


def test_settings_that_are_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(statestore.InvalidInputError, match=r"INVALID_OPTION.*cannot be read"):
            statestore.inspect(NOBODY, consumer_config=str(path))


def test_settings_go_with_a_broker(tmp_path: Path) -> None:
    (tmp_path / "app-stock-changelog.jsonl").write_text('{"key": "61", "value": null, "timestamp": 1}\n')
    with pytest.raises(statestore.InvalidInputError, match="consumerConfig goes with kafka://"):
        statestore.inspect(tmp_path, consumer_config="x")


@pytest.mark.slow
def test_no_broker_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password={SECRET}\n"
    )
    with pytest.raises(statestore.InvalidInputError, match=r"NO_ACCESS.*127\.0\.0\.1:1.*check the address") as found:
        statestore.sql(NOBODY, "select 1", consumer_config=str(file))
    assert SECRET not in str(found.value)
    assert capfd.readouterr() == ("", "")  # the client library is silent


def test_a_log_goes_to_another_process_without_a_connection() -> None:
    log = BrokerLog(BrokerAddress("a:1", "c"), "t", 3, 5, 9)
    copy: Any = pickle.loads(pickle.dumps(log))
    assert copy == log and copy.address.config == "c"


def test_what_is_known_before_a_log_was_read() -> None:
    address = BrokerAddress("a:1")
    unread, empty, removed = (BrokerLog(address, "t", 0, low, high).findings for low, high in ((5, 9), (0, 0), (7, 7)))
    assert (unread.records, unread.missing_offsets, unread.is_complete) == (None, None, False)
    assert "begins at offset 5" in unread.notes()[0]
    assert (empty.records, empty.missing_offsets, empty.is_complete, empty.notes()) == (0, 0, True, ())
    assert (removed.missing_offsets, removed.is_complete) == (7, False)
