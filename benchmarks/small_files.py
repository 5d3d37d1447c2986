"""A checkpoint of many small files: 200 partitions, hundreds of batches of few rows, no snapshot. Prints JSON lines.

    python benchmarks/small_files.py [--batches 142] [--partitions 200] [--folder DIR] [--changelogs]
    python benchmarks/small_files.py --objects 20 --batches 40     in an object store, 20 ms a request

The files are byte for byte as Spark writes them (``tests/support/checkpoints/small_checkpoints.py``), with their
checksums beside them. ``floor`` is the time to open, read and close each file of changes and its checksums once, and
``ratio`` what a question takes in units of it; a question that touches few files is below 1. Figures are processor
times, the least of the runs, which alternate; those of commands are of whole processes. Each answer is compared with
what was written before it is timed.

In an object store the figures are the seconds on the clock and the requests of the first time that a question is asked,
with the longest chain of requests that waited for each other; ``ratio`` is to the time to get each file once, sixteen
at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.checkpoints.small_checkpoints import SmallFiles, write_small_checkpoint

import statestore
from benchmarks.objects.served import ObjectServer, object_server
from statestore.catalog.summaries import summaries
from statestore.connector.report.figures import figures_of

ROUNDS, COMMAND_ROUNDS = 3, 2
PARALLEL = 16


def floor(folder: Path) -> int:
    """Open, read and close each file of changes, and its checksums; returns how many there were."""
    count = 0
    for partition in sorted((folder / "state" / "0").iterdir()):
        for entry in os.scandir(partition):
            if entry.is_file():
                descriptor = os.open(entry.path, os.O_RDONLY)
                os.read(descriptor, 1 << 16)
                os.close(descriptor)
                count += 1
    return count


def questions(made: SmallFiles, place: str | Path) -> dict[str, Callable[[], Any]]:
    """The questions to the checkpoint at a place, each with an answer that is known."""
    last = len(made.batches) - 1
    word = next(word for word, row in made.batches[-1].items() if row is not None)

    def table() -> Any:
        return statestore.inspect(place).table("state")

    return {
        "inspect": lambda: [each["status"] for each in summaries(place)],
        "versions": lambda: table().versions().num_rows,
        "one key": lambda: table().get({"word": word})["value"]["count"],
        "history of one key": lambda: table().history(key={"word": word}).read_all().num_rows,
        "scan": lambda: table().scan().read_all().num_rows,
        "first changes": lambda: next(iter(table().changes())).num_rows > 0,
        "all changes": lambda: sum(
            kind != "update_preimage" for kind in table().changes().read_all()["_change_type"].to_pylist()
        ),
        "difference of the last two": lambda: table().diff(last - 1, last).read_all().num_rows,
        "figures of a report": lambda: figures_of(table()._asked().for_plan()).growth[-1]["keys"],
    }


def answers(made: SmallFiles) -> dict[str, Any]:
    """Answers that the questions must have."""
    last = len(made.batches) - 1
    old, new = made.state(last - 1), made.state(last)
    word = next(word for word, row in made.batches[-1].items() if row is not None)
    changes, rows = 0, dict[str, Any]()
    for written in made.batches:
        for each, row in written.items():
            changes += rows.get(each) != row
            rows[each] = row
    return {
        "inspect": ["ok"],
        "versions": last + 1,
        "one key": new[word][0],
        "history of one key": sum(written.get(word) is not None for written in made.batches),
        "scan": len(new),
        "first changes": True,
        "all changes": changes,
        "difference of the last two": sum(old.get(each) != new.get(each) for each in {*old, *new}),
        "figures of a report": len(new),
    }


def spent(call: Callable[[], Any]) -> float:
    """The processor time of a call, of all threads."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def commands(made: SmallFiles, page: Path) -> dict[str, list[str]]:
    """The commands of a shell that ask the same."""
    last, path = len(made.batches) - 1, str(made.folder)
    word = next(word for word, row in made.batches[-1].items() if row is not None)
    return {
        "--version": ["--version"],
        "inspect": ["inspect", path],
        "versions": ["versions", path],
        "first 20 changes": ["changes", path, "--limit", "20"],
        "first 1000 changes": ["changes", path],
        "history of one key": ["history", path, "state", word],
        "difference of the last two": ["diff", path, "--from", str(last - 1), "--to", str(last)],
        "report": ["report", path, "-o", str(page)],
    }


def spent_by(command: list[str]) -> float:
    """The processor time of a command in a process of its own."""

    def now() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    program = "import sys; from statestore.connector.cli.program import main; main()"
    begin = now()
    subprocess.run(
        [sys.executable, "-c", program, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return now() - begin


def asked_locally(made: SmallFiles, page: Path) -> Iterator[dict[str, Any]]:
    """Time the questions and the commands."""
    asked, expected = questions(made, made.folder), answers(made)
    for name, ask in asked.items():
        found = ask()
        assert found == expected[name], (name, found, expected[name])
    files = floor(made.folder)
    times: dict[str, list[float]] = {name: [] for name in ("floor", *asked)}
    for _ in range(ROUNDS):
        times["floor"].append(spent(lambda: floor(made.folder)))
        for name, ask in asked.items():
            times[name].append(spent(ask))
    least = min(times["floor"])
    yield {"measure": "floor", "files": files, "seconds": round(least, 3)}
    for name in asked:
        best = min(times[name])
        yield {"measure": name, "seconds": round(best, 3), "ratio": round(best / least, 2)}
    for name, command in commands(made, page).items():
        best = min(spent_by(command) for _ in range(COMMAND_ROUNDS))
        yield {"measure": f"command: {name}", "seconds": round(best, 3), "ratio": round(best / least, 2)}


def asked_in_store(made: SmallFiles, server: ObjectServer, prefix: str, caches: Path) -> Iterator[dict[str, Any]]:
    """Ask each question once, with nothing kept on the disk."""
    place = server.warehouse(prefix)

    def timed(ask: Callable[[], Any]) -> dict[str, Any]:
        server.seen()
        begin = time.perf_counter()
        ask()
        taken, seen = time.perf_counter() - begin, server.seen()
        return {"seconds": round(taken, 2), "requests": seen.requests, "rounds": seen.rounds, "kinds": seen.kinds}

    least = timed(lambda: _get_all(made, server, prefix))
    yield {"measure": "floor", **least}
    expected = answers(made)
    for number, (name, ask) in enumerate(questions(made, place).items()):
        os.environ["STATESTORE_CACHE"] = str(caches / str(number))

        def checked(ask: Callable[[], Any] = ask, name: str = name) -> None:
            found = ask()
            assert found == expected[name], (name, found, expected[name])

        cost = timed(checked)
        yield {"measure": name, **cost, "ratio": round(cost["seconds"] / least["seconds"], 2)}


def _get_all(made: SmallFiles, server: ObjectServer, prefix: str) -> None:
    """Get each file of changes once."""
    import pyarrow.fs as pafs

    place = server.endpoint.partition("://")
    files = pafs.S3FileSystem(
        access_key=server.access_key, secret_key=server.secret_key, region=server.region, scheme=place[0],
        endpoint_override=place[2],
    )  # fmt: skip
    root = f"{server.bucket}/{prefix}/state/0"
    suffixes = (".delta", ".changelog")
    names = [
        f"{root}/{path.parent.name}/{path.name}"
        for path in (made.folder / "state" / "0").rglob("*")
        if path.suffix in suffixes
    ]

    def get(name: str) -> None:
        with files.open_input_stream(name) as stream:
            stream.read()

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(get, names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=142)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--changelogs", action="store_true", help="RocksDB with changelogs in place of the HDFS-backed provider"
    )
    parser.add_argument("--objects", type=float, metavar="MS", help="in an object store with this latency")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.folder or Path(temporary)
        if given.objects is None:
            made = write_small_checkpoint(
                place / "checkpoint", given.batches, given.partitions, changelogs=given.changelogs
            )
            for line in asked_locally(made, place / "report.html"):
                print(json.dumps(line), flush=True)
            return
        with object_server(place) as server:
            bucket = next(each for each in place.rglob(server.bucket) if each.is_dir())
            made = write_small_checkpoint(
                bucket / "small", given.batches, given.partitions, changelogs=given.changelogs, checksums=False
            )
            server.delay(given.objects)
            for line in asked_in_store(made, server, "small", place / "caches"):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
