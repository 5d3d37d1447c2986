"""A warehouse in Azure's blobs, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.object_stores.azure_server import AzureServer

import statestore
from statestore.formats.errors import NotFoundError

pytestmark = pytest.mark.slow


def test_a_store_in_azure(azure_server: AzureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    warehouse = azure_server.warehouse("stores")
    catalog = statestore.connect(warehouse)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as prices:
        prices.put("curry", 8.0, timestamp=1_000)
        first = prices.commit()
        prices.put("curry", 9.0, timestamp=2_000)
        prices.put("naan", 2.0, timestamp=1_500)
        prices.commit()
        for number in range(70):  # past a checkpoint of the log
            prices.put("dal", float(number), timestamp=3_000 + number)
            prices.commit()
        prices.compact(full=True)
    assert catalog.stores() == ["prices"]
    with statestore.connect(warehouse).open_store("prices") as prices:
        found = prices.get("curry", as_of=1_999)
        assert found is not None
        assert found.value == 8.0
        assert [row["item"] for row in prices.scan(version=first).read_all().to_pylist()] == ["curry"]
        assert prices.vacuum(dry_run=True) == []
    rows = statestore.sql(warehouse, "SELECT item, price FROM prices ORDER BY item").to_pylist()
    assert rows == [{"item": "curry", "price": 9.0}, {"item": "dal", "price": 69.0}, {"item": "naan", "price": 2.0}]
    (verified,) = statestore.verify(warehouse)
    assert verified.ok
    catalog.drop_store("prices")
    assert catalog.stores() == []
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        catalog.open_store("prices")
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as again:
        assert again.scan().read_all().num_rows == 0
