"""The README and the pages of docs/ cannot drift: their examples run and print the output on the page."""

from __future__ import annotations

import configparser
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]
from support.engines.shared_jvm import SharedJvm, shared_jvm
from support.object_stores.s3_server import S3Server
from support.parameters import mostly_slow
from support.paths import ROOT
from support.quick_spark import ENVIRONMENT
from support.source_tree import package_folders, setup_cfg

from benchmarks.__main__ import parsed
from statestore.connector.capture.metrics import CaptureMetrics
from statestore.connector.cli.main import app
from statestore.connector.supported_spark import known_releases

README = ROOT / "README.md"
DECISIONS = ROOT / "docs" / "decisions"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = {"make_reference": ROOT / "docs" / "reference.md", "make_api": ROOT / "docs" / "api.md"}
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TASKS = (
    "capture",
    "watch-state",
    "capture-state",
    "time-travel",
    "spark-sql",
    "spark-state",
    "kafka-state",
    "flink-state",
    "keyed-state",
    "import-state",
    "mend",
    "tracked-state",
    "debug-a-join",
    "point-in-time-features",
    "operate-a-store",
    "index",
    "concepts",
    "cluster",
    "production",
    "tutorials/spark-checkpoint",
    "tutorials/flink-savepoint",
    "tutorials/kafka-streams",
    "tutorials/own-store",
    "tutorials/keyed-state",
)
PAGES = {"README": README, **{name: ROOT / "docs" / f"{name}.md" for name in TASKS}}
QUICK = ("time-travel",)
SHELL_PAGES = (ROOT / "docs" / "install.md", ROOT / "docs" / "performance.md")
WHEEL = "dist/statestore-0.1.0-py3-none-any.whl"
NOT_RUN = {  # lines of shell on these pages, and why the test does not run them
    "python -m pip install .": "would replace the package that is tested; ./run installs it like that",
    "python -m pip install build": "needs an index of packages",
    "python -m build --wheel": "writes into the clone; .ci/packages.py builds and installs the wheel",
    f"python -m pip install {WHEEL}": "would replace the package that is tested; .ci/packages.py does so elsewhere",
    f"python -m pip install {WHEEL}[spark]": "needs an index of packages",
    "./run check": "is a step of .ci/run",
    ".venv/bin/pip install .[bench]": "needs an index of packages",
    ".venv/bin/python -m benchmarks.page results.jsonl": "writes the page; tests of benchmarks.page run it",
}
FILE = re.compile(r"`((?:formats|catalog|connector|tests|benchmarks|examples|docs)/[\w./-]+)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


IN_A_DIRECTORY = re.compile(r"(?<![\w/])warehouse\b(?=[\"/ ])")


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer(page.read_text("utf-8"))]


def test_first_block_of_the_readme_is_the_two_commands() -> None:
    lines = blocks(README)[0].text.splitlines()
    assert len(lines) == 2
    programs = [shlex.split(line)[0] for line in lines]
    assert all(os.access(ROOT / program, os.X_OK) for program in programs)
    assert shlex.split(lines[0])[1:] == ["demo"]


def test_links_to_files_resolve() -> None:
    links = [(page, link) for page in DOCUMENTS for link in file_links(page)]
    assert [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_files_that_a_page_names_exist() -> None:
    pages = [*DOCUMENTS, CONTRIBUTING]
    named = [(page, name) for page in pages for name in FILE.findall(page.read_text("utf-8"))]
    assert [f"{page}: {name}" for page, name in named if not (ROOT / name).exists()] == []


def test_the_architecture_describes_each_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = [folder.relative_to(ROOT).as_posix() for folder in package_folders().values()]
    assert [room for room in rooms if f"| `{room}/`" not in page] == []


@pytest.mark.parametrize("name", ["README", "spark-sql"])
def test_pages_name_the_known_releases_of_spark(name: str) -> None:
    assert f"Spark {known_releases()} are supported" in " ".join(PAGES[name].read_text("utf-8").split())


def test_every_page_can_be_reached_from_the_readme() -> None:
    assert {ROOT / link for link in file_links(README)} >= {*(ROOT / "docs").glob("*.md"), DECISIONS / "README.md"}


def test_the_index_of_decisions_lists_each_page_once_and_in_order() -> None:
    linked = [link for link in file_links(DECISIONS / "README.md") if not link.startswith("../")]
    assert linked == sorted(page.name for page in DECISIONS.glob("[0-9]*.md"))


def test_the_glossary_is_in_order_and_has_each_term_once() -> None:
    terms = re.findall(r"^\*\*(.+?)\*\*:", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def test_every_fence_is_of_a_kind_that_is_checked() -> None:
    kinds = {(name, block.language) for name, page in PAGES.items() for block in blocks(page)[name == "README" :]}
    assert {language for _, language in kinds} <= {"python", "text", "console", "ini", "yaml"}


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJvm]:
    with shared_jvm(tmp_path_factory.mktemp("jvm"), variables()) as found:
        yield found


@pytest.mark.parametrize("name", mostly_slow(PAGES, QUICK, each=True))
def test_examples_print_what_the_page_says(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The ``python`` blocks run in order as one script, and each ``text`` block is what the one before it prints; then
    each ``console`` block, which holds ``$ command`` and its output, finds the files that the script has made. The
    clone's test data is where a reader at the root of a clone has it. The README starts Spark from nothing, and other
    pages share a JVM."""
    mine = blocks(PAGES[name])[name == "README" :]
    if name == "README" or "SparkSession" not in joined(mine, "python"):
        check_page(mine, tmp_path)
    else:
        jvm: SharedJvm = request.getfixturevalue("jvm")
        with jvm.emptied() as folder:
            check_page(mine, folder, jvm.environment())


def check_page(parts: list[Block], folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> None:
    (folder / "tests").symlink_to(ROOT / "tests")
    printed = run([sys.executable, "-c", joined(parts, "python")], folder, more)
    assert printed == joined(parts, "text")
    for command, output in COMMAND.findall(joined(parts, "console")):
        assert run(["bash", "-c", command], folder) == output, command


@pytest.mark.slow
def test_the_readme_runs_in_an_object_store(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's script prints the same with a location in S3 for ``warehouse``, and keys in the environment."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    mine = [Block(each.language, IN_A_DIRECTORY.sub("s3://states/readme", each.text)) for each in blocks(README)[1:]]
    assert run([sys.executable, "-c", joined(mine, "python")], tmp_path) == joined(mine, "text")
    for command, output in COMMAND.findall(joined(mine, "console")):
        assert run(["bash", "-c", command], tmp_path) == output, command
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.slow
def test_the_page_on_object_stores_runs(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls, with the names of a real server in place of those on the page, by the environment and by options."""
    s3_server.make_bucket("bucket")
    page = ROOT / "docs" / "object-stores.md"
    by_environment, by_options = [each.text for each in blocks(page) if each.language == "python"]
    given = {
        "eu-west-1": s3_server.region,
        '"access_key": "…"': f'"access_key": "{s3_server.access_key}"',
        '"secret_key": "…"': f'"secret_key": "{s3_server.secret_key}"',
        "minio.example:9000": s3_server.endpoint,
    }
    for written, value in given.items():
        assert by_options.count(written) == 1
        by_options = by_options.replace(written, value)
    use = "\nassert list(catalog) == [] and 's3://bucket/warehouse' in repr(catalog)\n"
    run([sys.executable, "-c", f"import statestore\ncatalog = {by_options}{use}"], tmp_path)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    run([sys.executable, "-c", by_environment + use], tmp_path)


def test_services_of_a_page_start_commands_that_are() -> None:
    """Each command of a systemd unit and of a Kubernetes object parses, and what refers to another place finds it."""
    started, agents, metrics = [], [], []
    for block in blocks(PAGES["watch-state"]):
        if block.language == "ini":
            unit = configparser.ConfigParser(strict=True, interpolation=None)
            unit.optionxform = str  # type: ignore[assignment, method-assign]
            unit.read_string(block.text)
            assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
            program, *words = shlex.split(unit["Service"]["ExecStart"])
            assert Path(program).is_absolute() and Path(program).name == "statestore"
            started.append(words)
        elif block.language == "yaml":
            for each in yaml.safe_load_all(block.text):
                if each.get("kind") == "Deployment":
                    pod = each["spec"]["template"]
                    assert each["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
                    capture, agent = pod["spec"]["containers"]
                    started.append([*capture["command"][1:], *capture["args"]])
                    assert {each["name"] for each in agent["volumeMounts"]} == {
                        v["name"] for v in pod["spec"]["volumes"]
                    }
                elif each.get("kind") == "ConfigMap":
                    (job,) = yaml.safe_load(each["data"]["prometheus.yml"])["scrape_configs"]
                    agents += job["static_configs"][0]["targets"]
                else:
                    rules = each["groups"][0]["rules"]
                    metrics += re.findall(r"statestore_\w+", " ".join(rule["expr"] for rule in rules))
    commands: Any = typer.main.get_command(app)
    ports = []
    for name, *words in started:
        command = commands.get_command(typer.Context(commands), name)
        ports.append(command.make_context(name, words).params.get("metrics_port"))
    assert [f"127.0.0.1:{port}" for port in ports if port is not None] == agents * 2
    page = PAGES["watch-state"].read_text("utf-8")
    served = {f"{each.name}{'_total' if each.type == 'counter' else ''}" for each in CaptureMetrics().describe()}
    assert set(re.findall(r"^\| `(statestore_capture_\w+)`", page, re.MULTILINE)) == served >= set(metrics)


def test_shell_lines_of_a_page_run() -> None:
    """Lines run as they are, but for those of NOT_RUN, of which each has its reason. Benchmarks check their options and
    do not run."""
    done, left = [], set(NOT_RUN)
    for page in SHELL_PAGES:
        for line in (line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()):
            command = " ".join(shlex.split(line, comments=True))
            if command in NOT_RUN:
                left.discard(command)
                continue
            text = line.split(" #")[0]
            if " -m benchmarks" in text:
                assert parsed(shlex.split(text.partition(" -m benchmarks ")[2])).size
            else:
                run(["bash", "-c", text], ROOT)
            done.append(command)
    assert len(done) >= 5 and not left


@pytest.mark.slow
def test_the_statement_on_views_of_object_stores_runs(jvm: SharedJvm) -> None:
    """In a local path, because Spark's client of S3 is not needed for its options."""
    (statement,) = (block.text for block in blocks(ROOT / "docs" / "object-stores.md") if block.language == "sql")
    script = f"""
import statestore
from pyspark.sql import SparkSession

with statestore.connect("warehouse").create_store("prices", key={{"i": "string"}}, value={{"p": "double"}}) as store:
    for price in (8.0, 9.5):
        store.put("curry", price, timestamp="2024-05-01T08:00Z")
        store.commit()
spark = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
statestore.register(spark)
spark.sql({statement.replace("s3a://bucket/", f"{jvm.folder}/")!r})
print(spark.table("prices").select("i", "p").collect()[0].p)
"""
    with jvm.emptied() as folder:
        assert run([sys.executable, "-c", script], folder, jvm.environment()) == "8.0\n"


def test_figures_of_the_comparison_are_those_of_the_last_run() -> None:
    """Rows that the page has from docs/performance.md are there word for word."""
    rows = [line for line in (ROOT / "docs" / "comparison.md").read_text("utf-8").splitlines() if "100 commits" in line]
    measured = (ROOT / "docs" / "performance.md").read_text("utf-8").splitlines()
    assert len(rows) == 8 and [row for row in rows if row not in measured] == []


def test_the_page_on_installing_names_each_extra_once() -> None:
    named = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(setup_cfg()["options.extras_require"])


@pytest.mark.parametrize("script", GENERATED)
def test_a_generated_page_is_what_the_code_says(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    made = runpy.run_path(str(ROOT / "docs" / f"{script}.py"))["page"]()
    assert GENERATED[script].read_text("utf-8") == made, f"run python docs/{script}.py"


def file_links(page: Path) -> list[str]:
    """Links of a page to files of the clone, without their anchors."""
    return re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text("utf-8"))


def joined(parts: list[Block], language: str) -> str:
    return "".join(block.text for block in parts if block.language == language)


def variables() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **ENVIRONMENT, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(command: list[str], folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> str:
    found = subprocess.run(command, cwd=folder, env={**variables(), **more}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout
