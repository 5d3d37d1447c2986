"""A checkpoint of many small files: 200 partitions, hundreds of batches of few rows, no snapshot. Prints JSON lines.

    python benchmarks/small_files.py [--batches 142] [--partitions 200] [--folder DIR] [--changelogs]

The files are byte for byte as Spark writes them (``tests/support/checkpoints/small_checkpoints.py``), with their
checksums beside them. ``floor`` is the time to open, read and close each file of changes and its checksums once, and
``ratio`` what a question takes in units of it; a question that touches few files is below 1. Figures are processor
times, the least of the runs, which alternate. Each answer is compared with what was written before it is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.checkpoints.small_checkpoints import SmallFiles, write_small_checkpoint

import statestore
from statestore.catalog.summaries import summaries

ROUNDS = 3


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


def questions(made: SmallFiles) -> dict[str, Callable[[], Any]]:
    """The questions, each with an answer that is known."""
    last = len(made.batches) - 1
    word = next(word for word, row in made.batches[-1].items() if row is not None)

    def table() -> Any:
        return statestore.inspect(made.folder).table("state")

    return {
        "inspect": lambda: [each["status"] for each in summaries(made.folder)],
        "versions": lambda: table().versions().num_rows,
        "one key": lambda: table().get({"word": word})["value"]["count"],
        "history of one key": lambda: table().history(key={"word": word}).read_all().num_rows,
        "scan": lambda: table().scan().read_all().num_rows,
        "first changes": lambda: next(iter(table().changes())).num_rows > 0,
        "all changes": lambda: sum(
            kind != "update_preimage" for kind in table().changes().read_all()["_change_type"].to_pylist()
        ),
        "difference of the last two": lambda: table().diff(last - 1, last).read_all().num_rows,
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
    }


def spent(call: Callable[[], Any]) -> float:
    """The processor time of a call, of all threads."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=142)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--changelogs", action="store_true", help="RocksDB with changelogs in place of the HDFS-backed provider"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)) / "checkpoint"
        made = write_small_checkpoint(folder, given.batches, given.partitions, changelogs=given.changelogs)
        asked, expected = questions(made), answers(made)
        for name, ask in asked.items():
            found = ask()
            assert found == expected[name], (name, found, expected[name])
        files = floor(folder)
        times: dict[str, list[float]] = {name: [] for name in ("floor", *asked)}
        for _ in range(ROUNDS):
            times["floor"].append(spent(lambda: floor(folder)))
            for name, ask in asked.items():
                times[name].append(spent(ask))
        least = min(times["floor"])
        print(json.dumps({"measure": "floor", "files": files, "seconds": round(least, 3)}))
        for name in asked:
            best = min(times[name])
            print(json.dumps({"measure": name, "seconds": round(best, 3), "ratio": round(best / least, 2)}))


if __name__ == "__main__":
    main()
