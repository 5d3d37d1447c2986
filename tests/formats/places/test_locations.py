"""The meaning of paths and URIs: file systems, folders in them, and their names in messages."""

from __future__ import annotations

import importlib.util
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from support.refusals import refused

import statestore
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places import locations
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import is_relative, open_location, parse_location

LOCAL = [
    ("/data/a b", "/data/a b"),
    ("/data/a%20b/", "/data/a%20b"),
    ("data/ü", "data/ü"),
    ("file:/data/x", "/data/x"),
    ("file:///data/x/", "/data/x"),
    ("file://localhost/data/x", "/data/x"),
    ("FILE:///data/a b", "/data/a b"),
    ("file:data/x", "data/x"),
    ("a:b/c", "a:b/c"),
    ("/data/s3://b/x?y", "/data/s3:/b/x?y"),
]

ELSEWHERE = [
    ("s3://bucket/a/b/", "s3", "bucket/a/b", "s3://bucket/a/b"),
    ("s3a://bucket/a b%20ü", "s3", "bucket/a b%20ü", "s3a://bucket/a b%20ü"),
    ("s3n://bucket", "s3", "bucket", "s3n://bucket"),
    ("s3:/bucket/a", "s3", "bucket/a", "s3://bucket/a"),
    ("s3://key:word@bucket/a?region=x&scheme=http", "s3", "bucket/a", "s3://bucket/a"),
    ("gs://anonymous@bucket/a", "gcs", "bucket/a", "gs://anonymous@bucket/a"),
    ("gcs://anonymous@bucket/a", "gcs", "bucket/a", "gcs://anonymous@bucket/a"),
    ("abfs://box@account.dfs.core.windows.net/a", "abfs", "box/a", "abfs://box@account.dfs.core.windows.net/a"),
    ("abfss://box@account.dfs.core.windows.net/a", "abfs", "box/a", "abfss://box@account.dfs.core.windows.net/a"),
]


@pytest.mark.parametrize(("text", "path"), LOCAL)
def test_local_paths_as_people_and_spark_write_them(text: str, path: str) -> None:
    location = parse_location(text)
    absolute = str(Path(path).absolute())
    assert (location.is_local, location.uri, str(location)) == (True, absolute, absolute)
    assert is_relative(text) == (path != absolute)
    filesystem, opened = open_location(location)
    assert (filesystem.type_name, opened) == ("local", absolute)


def test_a_percent_sign_in_a_file_uri_is_what_exists(tmp_path: Path) -> None:
    """Spark writes names as they are, pathlib and browsers encode them."""
    (tmp_path / "a b").mkdir()
    assert parse_location((tmp_path / "a b").as_uri()).path == f"{tmp_path}/a b"
    assert parse_location(f"file:{tmp_path}/none%20such").path == f"{tmp_path}/none%20such"
    (tmp_path / "a%20b").mkdir()
    assert parse_location(f"file://{tmp_path}/a%20b").path == f"{tmp_path}/a%20b"


@pytest.mark.parametrize(("text", "kind", "path", "shown"), ELSEWHERE)
def test_object_stores(text: str, kind: str, path: str, shown: str) -> None:
    location = parse_location(text)
    assert str(location) == shown
    assert "word" not in repr(location)
    assert parse_location(location.uri) == location == pickle.loads(pickle.dumps(location))
    if kind != "s3" or "region" in text:  # else the client asks Amazon where the bucket is
        filesystem, found = open_location(location)
        assert (filesystem.type_name, found) == (kind, path)


def test_folders_of_a_location_keep_its_credentials() -> None:
    location = parse_location("s3://key:word@bucket/a/b?scheme=http")
    assert location.at("c").uri == "s3://key:word@bucket/a/b/c?scheme=http"
    assert location.parent.uri == "s3://key:word@bucket/a?scheme=http"
    assert (location.name, location.parent.parent.name) == ("b", "bucket")


@pytest.mark.parametrize(
    ("text", "asked", "path"),
    [
        ("s3a://bucket/a b?region=x", "s3://bucket/?region=x", "/root/a b"),
        ("s3n://key:word@bucket/a", "s3://key:word@bucket/", "/root/a"),
        ("gcs://bucket/a", "gs://bucket/?retry_limit_seconds=8", "/root/a"),
        ("hdfs://namenode:8020/user/a b%20", "hdfs://namenode:8020/", "/root/user/a b%20"),
        ("hdfs:///user/a", "hdfs:///", "/root/user/a"),
        ("hdfs:/user/a", "hdfs:///", "/root/user/a"),
        ("viewfs://cluster/a", "viewfs://cluster/", "/root/a"),
    ],
)
def test_what_pyarrow_is_asked_for(text: str, asked: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are never part of the URI, in which they would have to be encoded."""
    uris = []

    class Files:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            uris.append(uri)
            return None, "/root"

    locations._opened.cache_clear()
    monkeypatch.setattr(pafs, "FileSystem", Files)
    assert open_location(parse_location(text)) == (None, path)
    assert uris == [asked]
    locations._opened.cache_clear()


def test_what_names_no_place_is_refused() -> None:
    for text in ("s3://", "s3:///folder", "abfs:///a", "gs://user@/a"):
        refused(InvalidInputError, "INVALID_LOCATION", partial(parse_location, text), "expected")
    refused(InvalidInputError, "INVALID_LOCATION", lambda: parse_location("file://host/a"), "'host'")
    for text in ("s3://key:word@bucket/a?endpoint=1", "s3://key:word@bu cket/a"):
        error = refused(InvalidInputError, "INVALID_LOCATION", partial(statestore.inspect, text), "cket/a")
        assert "word" not in str(error)


def test_unknown_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(UnsupportedError, "UNSUPPORTED_PATH", lambda: statestore.inspect("nosuch://key:word@b/a"), "nosuch://b/a")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused(UnsupportedError, "UNSUPPORTED_PATH", lambda: statestore.inspect("memory://a"), "install fsspec")


def test_hdfs_without_hadoop_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_uri(uri: str) -> None:
        raise OSError("Unable to load libjvm")

    monkeypatch.setattr(pafs, "FileSystem", type("Files", (), {"from_uri": staticmethod(from_uri)}))
    locations._opened.cache_clear()
    read = "hdfs://namenode/checkpoint"
    refused(UnsupportedError, "UNSUPPORTED_PATH", lambda: statestore.inspect(read), read, "CLASSPATH", "libjvm")


def test_warehouses_are_local_or_in_object_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(
        UnsupportedError, "UNSUPPORTED_PATH", partial(statestore.connect, "hdfs://key:word@host/a"), "hdfs://host/a"
    )
    refused(UnsupportedError, "UNSUPPORTED_PATH", partial(statestore.verify, "hdfs://key:word@host/a"), "hdfs://host/a")
    assert list(tmp_path.iterdir()) == []
    store = statestore.connect(f"file://{tmp_path}/w").create_store("s", key={"k": "int"}, value={"v": "int"})
    store.close()
    assert statestore.inspect((tmp_path / "w").as_uri()).tables() == ["s"]


@pytest.mark.parametrize("text", ["", "file:", "file://"])
def test_an_empty_path_is_not_the_working_directory(text: str) -> None:
    refused(InvalidInputError, "INVALID_LOCATION", partial(statestore.inspect, text), "it is empty")


@pytest.mark.parametrize("text", ["n" * 256, "/" + "a/" * 3000, "file:///" + "n" * 300])
def test_a_name_that_no_folder_can_have(text: str) -> None:
    refused(InvalidInputError, "INVALID_LOCATION", partial(statestore.inspect, text), "too long")


@pytest.mark.local_files
def test_a_neighbour_whose_name_is_no_text(tmp_path: Path) -> None:
    """A file of another encoding in a folder does not keep the folder from being read."""
    statestore.connect(tmp_path).create_store("s", key={"k": "int"}, value={"v": "int"}).close()
    for name in (b"caf\xe9", b"x\xff"):
        (tmp_path / os.fsdecode(name)).mkdir()
    assert statestore.inspect(tmp_path).tables() == ["s"]
    folder = folder_at(parse_location(tmp_path))
    assert (folder.folders(), folder.files()) == (["s"], {})
