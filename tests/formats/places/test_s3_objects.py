"""Objects of S3 through obstore: what is read, what is kept, and whose credentials are used."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from support.object_store import BUCKET, ObjectStore, object_store
from support.refusals import refused

from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError
from statestore.formats.places import fetched_parts
from statestore.formats.places.fetched_parts import forget_parts, keep_part, kept_part
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import open_location, parse_location
from statestore.formats.places.s3_objects import s3_object

ODD = "we ird%20#{x}*[1]~ü+&=.bin"
DATA = bytes(range(256)) * 20_000


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        for name, data in ((ODD, DATA), ("empty", b"")):
            with found.filesystem.open_output_stream(f"{BUCKET}/folder/{name}") as file:
                file.write(data)
        yield found


@pytest.fixture
def folder(store: ObjectStore) -> Folder:
    forget_parts()
    store.clear()
    return folder_at(parse_location(store.uri("folder"))).remembering()


def test_names_parts_and_streams(folder: Folder) -> None:
    assert folder.files() == {ODD: len(DATA), "empty": 0}
    assert folder.read_once(ODD) == DATA
    assert folder.read_once("empty") == b""
    with folder.stream(ODD) as stream:
        assert stream.read(5) + stream.read(0) + stream.read(3_000_000) + stream.read() == DATA
        assert stream.read(1) == b""
    with folder.random_access(ODD, len(DATA)) as file:
        assert file.read_at(300, 7) == DATA[300:307]
        assert file.read_at(len(DATA) - 3, 10) == DATA[-3:]
        assert file.read_at(len(DATA), 10) == b""


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 10 * len(DATA)])
def test_another_length_is_damage(folder: Folder, size: int) -> None:
    with folder.random_access(ODD, size) as file:
        for offset in (0, size - 2):
            refused(CorruptError, "FILE_DAMAGED", lambda at=offset: file.read_at(at, 2), f"found {len(DATA)} bytes")  # type: ignore[misc]


def test_missing_and_refused_objects(store: ObjectStore, folder: Folder) -> None:
    refused(NotFoundError, "FILE_NOT_FOUND", lambda: folder.read_once("gone"), f"{BUCKET}/folder/gone")
    refused(NotFoundError, "FILE_NOT_FOUND", lambda: folder.random_access("gone", 3).read_at(0, 2), "gone")
    given, store.refuses = store.refuses, lambda method, path: 403
    try:
        error = refused(InvalidInputError, "NO_ACCESS", lambda: folder.read_once(ODD), "credentials")
    finally:
        store.refuses = given
    assert "us" not in error.message.split()


def test_only_what_was_listed_and_is_settled_is_kept(
    store: ObjectStore, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requests() -> int:
        store.clear()
        folder.read_once("empty")
        return len(store.requests)

    assert [requests(), requests()] == [1, 1]  # never listed
    folder.entries()
    monkeypatch.setattr(fetched_parts, "SETTLED_SECONDS", 1e6)
    assert [requests(), requests()] == [1, 1]  # changed a moment ago
    monkeypatch.setattr(fetched_parts, "SETTLED_SECONDS", -60)
    assert [requests(), requests()] == [1, 0]
    # Another user of the same server does not get it.
    other = folder_at(parse_location(store.uri("folder", user="you:too"))).remembering()
    other.entries()
    store.clear()
    other.read_once("empty")
    assert store.requests == [("GET", f"/{BUCKET}/folder/empty")]


def test_kept_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_parts()
    monkeypatch.setattr(fetched_parts, "MOST_BYTES", 100)
    for number in range(5):
        keep_part(number, bytes(30))
        kept_part(0)
    assert [number for number in range(5) if kept_part(number) is not None] == [0, 3, 4]
    keep_part("large", bytes(fetched_parts.MOST_OF_A_PART + 1))
    assert kept_part("large") is None


def _read_in_child(uri: str, results: multiprocessing.Queue[bytes]) -> None:
    results.put(b"no obstore" if s3_object(*open_location(parse_location(uri))) is None else b"obstore")


def test_a_fork_leaves_the_threads_of_its_parent_alone(store: ObjectStore, folder: Folder) -> None:
    """obstore would wait for them for ever."""
    assert folder.read_once("empty") == b""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_read_in_child, args=(store.uri("folder"), results))
    child.start()
    assert results.get(timeout=60) == b"no obstore"
    child.join()


@pytest.mark.parametrize(
    ("credentials", "config", "profile", "key"),
    [
        (None, None, None, "default chain"),
        ("[default]\naws_access_key_id=A\naws_secret_access_key=B\n", None, None, "A"),
        ("[default]\naws_access_key_id=A\naws_secret_access_key=B\n[p]\naws_access_key_id=C\naws_secret_access_key=D",
         None, "p", "C"),
        (None, "[profile p]\naws_access_key_id=E\naws_secret_access_key=F\nregion=x", "p", "E"),
        (None, "[default]\nregion=x", None, "default chain"),
        ("[default]\naws_access_key_id=A\naws_secret_access_key=B\naws_session_token=T", None, None, "pyarrow"),
        (None, "[default]\nrole_arn=arn\nsource_profile=x", None, "pyarrow"),
        (None, "[default]\nsso_session=s", None, "pyarrow"),
        (None, "[default]\nregion=x", "unknown", "pyarrow"),
        (None, "no section", None, "pyarrow"),
    ],
)  # fmt: skip
def test_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: str | None, config: str | None, profile: str | None,
    key: str,
) -> None:  # fmt: skip
    """obstore knows no profiles: lasting keys are read for it, for everything else pyarrow reads."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for variable, text in (("AWS_SHARED_CREDENTIALS_FILE", credentials), ("AWS_CONFIG_FILE", config)):
        path = tmp_path / variable
        monkeypatch.setenv(variable, str(path))
        if text is not None:
            path.write_text(text)
    if profile is not None:
        monkeypatch.setenv("AWS_PROFILE", profile)
    endpoint = f"{tmp_path.name}:1"  # settings are looked up once for each
    found = s3_object(pafs.S3FileSystem(region="us-east-1", endpoint_override=endpoint), "bucket/key")
    if found is None:
        assert key == "pyarrow"
    else:
        assert found.store.config.get("access_key_id", "default chain") == key


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AWS_ENDPOINT_URL_S3", "http://elsewhere:1"), ("AWS_SKIP_SIGNATURE", "true"), ("AWS_S3_EXPRESS", "true"),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"), ("HTTP_PROXY", "http://elsewhere:1"),
        ("https_proxy", "http://elsewhere:1"), ("AWS_SESSION_TOKEN", "of other keys"), ("AWS_NEW_SETTING", "1"),
    ],
)  # fmt: skip
def test_the_environment_changes_nothing_that_a_location_says(
    store: ObjectStore, folder: Folder, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """obstore follows variables that pyarrow does not; the two must never read from different places."""
    monkeypatch.setenv(variable, value)
    assert s3_object(folder.filesystem, folder.path + "/empty") is None
    assert folder.read_once("empty") == b""


def test_keys_in_both_files_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for variable, key in (("AWS_SHARED_CREDENTIALS_FILE", "A"), ("AWS_CONFIG_FILE", "C")):
        (tmp_path / variable).write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=S\n")
        monkeypatch.setenv(variable, str(tmp_path / variable))
    found = s3_object(pafs.S3FileSystem(region="us-east-1", endpoint_override=f"{tmp_path.name}:1"), "bucket/key")
    assert found is not None
    assert found.store.config["access_key_id"] == "A"


def test_secrets_are_in_no_repr(folder: Folder) -> None:
    with folder.random_access(ODD, len(DATA)) as file:
        assert "secret" not in repr(file)
        assert "'er'" not in repr(file)


def test_an_endpoint_with_a_scheme(store: ObjectStore) -> None:
    uri = store.uri("folder").replace("override=", "override=http%3A%2F%2F").replace("&scheme=http", "")
    assert folder_at(parse_location(uri)).read_once("empty") == b""


def test_keys_that_obstore_does_not_take_are_left_to_pyarrow(folder: Folder) -> None:
    for name in ("a//b", "a/../b", "a\nb"):
        assert s3_object(folder.filesystem, f"{BUCKET}/{name}") is None


def test_roles_proxies_and_certificates_are_left_to_pyarrow() -> None:
    plain = {"region": "us-east-1", "access_key": "a", "secret_key": "b"}
    assert s3_object(pafs.S3FileSystem(**plain), "bucket/key") is not None
    for more in ({"proxy_options": "http://proxy:8080"}, {"force_virtual_addressing": True}):
        assert s3_object(pafs.S3FileSystem(**plain, **more), "bucket/key") is None
    assert s3_object(pafs.LocalFileSystem(), "/folder/key") is None


def test_session_tokens_and_anonymous_reads_in_a_uri() -> None:
    for option, setting in (("session_token=a%2Fb", ("session_token", "a/b")), ("anonymous=true", ("anonymous", True))):
        user = "" if "anonymous" in option else "u:s@"
        filesystem, path = open_location(parse_location(f"s3://{user}bucket/x?region=us-east-1&{option}"))
        _, (settings,) = filesystem.__reduce__()
        assert (path, settings["region"], settings[setting[0]]) == ("bucket/x", "us-east-1", setting[1])
        assert s3_object(filesystem, path) is not None
