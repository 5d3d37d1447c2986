"""Captures of sources that are not there yet, or cannot be reached: waited for while following, else an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkpoints.growing_checkpoints import Growing
from support.checkpoints.small_checkpoints import write_small_checkpoint
from support.object_stores.s3_server import S3Server

import statestore
from statestore.formats.errors import StateStoreError


def test_a_query_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    """After no file and after each file of the first batch a look waits, until the batch is committed."""
    made = write_small_checkpoint(tmp_path / "whole", 1, 2, rows=5, words=9)
    checkpoint = tmp_path / "checkpoint"

    def put(path: str, content: bytes) -> None:
        (checkpoint / path).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / path).write_bytes(content)

    growing = Growing(made.folder, put, lambda path: (checkpoint / path).unlink())
    writes = growing.writes()
    with statestore.capture(checkpoint, tmp_path / "w", follow=True, every="0 ms") as following:
        while not growing.commits:
            event = next(following)
            assert event.kind == "waiting" and str(checkpoint) in event.reason
            next(writes)
        event = next(following)
    assert (event.kind, event.state, event.version, event.rows) == ("captured", "state", 0, len(made.batches[0]))


@pytest.mark.parametrize(("place", "code"), [("bucket", "PATH_NOT_FOUND"), ("key", "NO_ACCESS")])
def test_an_object_store_without_the_source(s3_server: S3Server, tmp_path: Path, place: str, code: str) -> None:
    """A missing bucket and a refused key are an error of one look, and waited for while following."""
    uri = s3_server.warehouse("checkpoint", bucket="nobody-has-made-it" if place == "bucket" else "states")
    uri = uri.replace("cr%2Bet", "crooked") if place == "key" else uri
    with pytest.raises(StateStoreError) as raised:
        statestore.capture(uri, tmp_path / "w")
    assert raised.value.code == code and "secret" not in raised.value.message
    with statestore.capture(uri, tmp_path / "w", follow=True, every="0 ms") as following:
        event = next(following)
    assert event.kind == "waiting" and code in event.reason
