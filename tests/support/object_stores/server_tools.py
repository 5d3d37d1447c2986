"""Programs of real object stores: found on this machine, or installed once into the user's cache.

They are installed by the package managers of their languages, go and npm, in a pinned version.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from support.paths import TESTS

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
AZURITE = "azurite@3.35.0"
GCS_EMULATOR = "github.com/fsouza/fake-gcs-server@v1.56.1"
PATIENCE_S = 600


@functools.cache
def s3_gateway() -> Path:
    """The program ``versitygw``: that of STATESTORE_VERSITYGW, of PATH, of go's folders, or a new one.

    Skips the test where it cannot be had, unless STATESTORE_OBJECT_STORES=required, as in CI.
    """
    return _of_go("STATESTORE_VERSITYGW", "versitygw", GATEWAY)


@functools.cache
def gcs_emulator() -> Path:
    """The program ``fake-gcs-server``: that of STATESTORE_FAKE_GCS, of PATH, of go's folders, or a new one.

    Skips the test where it cannot be had, unless STATESTORE_OBJECT_STORES=required, as in CI.
    """
    return _of_go("STATESTORE_FAKE_GCS", "fake-gcs-server", GCS_EMULATOR)


@functools.cache
def azurite() -> Path:
    """The program ``azurite-blob``: that of STATESTORE_AZURITE, of PATH, or a new one.

    Skips the test where it cannot be had, unless STATESTORE_OBJECT_STORES=required, as in CI.
    """
    folder = _cache(AZURITE)
    program = Path("node_modules", ".bin", "azurite-blob")
    for path in [*_places("STATESTORE_AZURITE", "azurite-blob"), folder / program]:
        if os.access(path, os.X_OK) and path.is_file():
            return path

    def install(into: Path) -> list[str]:
        return ["npm", "install", "--no-fund", "--no-audit", "--no-save", "--prefix", str(into), AZURITE]

    return _installed("npm", install, folder) / program


def do_without(reason: str) -> NoReturn:
    """Skip the test; with STATESTORE_OBJECT_STORES=required, fail it."""
    import pytest  # .ci/run installs the programs before there is a pytest

    if os.environ.get("STATESTORE_OBJECT_STORES") == "required":
        pytest.fail(f"{reason}, and STATESTORE_OBJECT_STORES=required")
    pytest.skip(reason)


def _places(variable: str, program: str) -> Iterator[Path]:
    if variable in os.environ:
        yield Path(os.environ[variable])
    if found := shutil.which(program):
        yield Path(found)


def _of_go(variable: str, program: str, package: str) -> Path:
    folder = _cache(package)
    for path in [*_places(variable, program), *_go_folders(program), folder / program]:
        if os.access(path, os.X_OK) and path.is_file():
            return path

    def install(into: Path) -> list[str]:
        return ["env", f"GOBIN={into}", "go", "install", package]

    return _installed("go", install, folder) / program


def _go_folders(program: str) -> Iterator[Path]:
    yield Path("~/go/bin", program).expanduser()
    if shutil.which("go"):
        asked = subprocess.run(["go", "env", "GOPATH"], capture_output=True, text=True, check=False).stdout.strip()
        yield from (Path(folder, "bin", program) for folder in asked.split(os.pathsep) if folder)


def _cache(package: str) -> Path:
    """The folder of a package in a version; beside what is compiled for the loops of this project."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return user / "statestore" / "test-tools" / package.rpartition("/")[2]


def _installed(tool: str, command: Callable[[Path], list[str]], folder: Path) -> Path:
    """Install into ``folder``, at once: a process that is killed meanwhile leaves nothing there."""
    if shutil.which(tool) is None:
        do_without(f"no {folder.name} here, and no {tool} to install it")
    with (TESTS / "conftest.py").open() as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not folder.exists():  # another process may have been quicker
            begun = folder.with_name(f"{folder.name}.begun")
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir(parents=True)
            done = subprocess.run(
                command(begun), cwd=begun, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            if done.returncode:
                do_without(f"{tool} could not install {folder.name}: {done.stderr[-500:]}")
            begun.rename(folder)
    return folder
