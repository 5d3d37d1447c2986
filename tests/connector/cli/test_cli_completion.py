"""Shell completion, called as bash and zsh do: commands, options, paths, and the stores at the path typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from support.command_line import run

import statestore

SCRIPT = Path(sys.executable).parent / "statestore"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shell") / "warehouse"
    catalog = statestore.connect(root)
    for name in ("prices", "prints", "weather"):
        catalog.create_store(name, key={"k": "string"}, value={"v": "bigint"}).close()
    (root / "no store").mkdir()
    return root


def bash(*words: str) -> list[str]:
    """The completions of the last word that bash gets."""
    environment = {"COMP_WORDS": " ".join(["statestore", *words]), "COMP_CWORD": str(len(words))}
    return _ask("complete_bash", environment).split()


def zsh(*words: str) -> str:
    return _ask("complete_zsh", {"_TYPER_COMPLETE_ARGS": " ".join(["statestore", *words])})


def _ask(what: str, environment: dict[str, str]) -> str:
    """The answer of the installed script, in this process: a process of its own would take a second for each."""
    with patch.dict(os.environ, {"_STATESTORE_COMPLETE": what, **environment}):
        answer = run()
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def test_commands_and_options(warehouse: Path) -> None:
    assert bash("ve") == ["versions", "verify"] and {"diff", "inspect", "sql"} <= set(bash(""))
    assert "--dry-run" in bash("vacuum", str(warehouse), "--")


def test_stores_at_the_path(warehouse: Path) -> None:
    assert bash("get", str(warehouse), "pr") == ["prices", "prints"]
    assert bash("compact", str(warehouse), "") == ["prices", "prints", "weather"]
    assert bash("diff", f"{warehouse}/prices", "p") == ["prices"]
    assert bash("get", f"{warehouse}/nothing", "p") == []
    assert '"prices"' in zsh("get", str(warehouse), "pri") and "weather" not in zsh("get", str(warehouse), "pri")


def test_paths(warehouse: Path) -> None:
    """Directories only, as they were begun."""
    (warehouse.parent / "warehouse.txt").touch()
    assert bash("inspect", f"{warehouse.parent}/ware") == [str(warehouse)]
    assert bash("inspect", f"{warehouse}/pri") == [f"{warehouse}/prices", f"{warehouse}/prints"]
    assert f'"{warehouse}"' in zsh("inspect", f"{warehouse.parent}/ware")


@pytest.mark.slow  # below, bash runs its script
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [SCRIPT, "--show-completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    assert "_STATESTORE_COMPLETE=complete_" in done.stdout and "statestore" in done.stdout


def test_bash_itself(warehouse: Path, tmp_path: Path) -> None:
    """Installed into a home of its own, sourced, and asked by bash's own completion function."""
    shell = shutil.which("bash")
    assert shell is not None
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment["PATH"] = f"{SCRIPT.parent}:{os.environ['PATH']}"
    subprocess.run([SCRIPT, "--install-completion", "bash"], env=environment, capture_output=True, check=True)
    asked = (
        f"source ~/.bashrc; COMP_WORDS=(statestore scan '{warehouse}' we); COMP_CWORD=3; "
        '_statestore_completion statestore; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([shell, "--norc", "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["weather"]
