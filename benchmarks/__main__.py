"""Measure the store against its goals and beside its peers. Needs only the package, peers where they are installed.

    python -m benchmarks                          the default size
    python -m benchmarks --size small             a first look
    python -m benchmarks --only reads,points      some measures
    python -m benchmarks --only live.py           a benchmark that is a file of its own

Prints a table; --out appends JSON lines, from which ``python -m benchmarks.page`` makes docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from benchmarks.loads.sizes import SIZES
from benchmarks.measures import MEASURES
from benchmarks.measures.workbench import Workbench
from benchmarks.peers.peer import MODULES
from benchmarks.results.figure import Figure, as_line
from benchmarks.results.other_files import FILES, FOLDER, run_file
from benchmarks.results.table import text_table

PACKAGES = ("pyarrow", "numpy", "duckdb", "rocksdict", "numba", "deltalake", "pyiceberg", "pylance")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    chosen = options.only.split(",") if options.only else list(MEASURES)
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(options.out.open("a")) if options.out else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        peers = tuple(MODULES) if options.peers is None else tuple(options.peers.split(","))
        bench = Workbench(folder, SIZES[options.size], options.seed, options.runs, peers)
        write_line(out, {"run": circumstances(options.size, options.seed, options.runs)})
        figures = list(run(bench, chosen, out))
        for reason in bench.absent:
            write_line(out, {"absent": reason})
            print(reason)
    print(text_table(figures))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=[*SIZES], default="default")
    parser.add_argument("--only", help=f"of {', '.join(MEASURES)}, or files: {', '.join(FILES)}")
    parser.add_argument("--peers", help=f"of {', '.join(MODULES)}; default: all that are installed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=9, help="alternating runs of each side; default: 9")
    parser.add_argument("--out", type=Path, help="append JSON lines to this file")
    parser.add_argument("--folder", type=Path, help="where to put the stores for the time of the run")
    options = parser.parse_args(arguments)
    for option, known in (("only", {*MEASURES, *FILES}), ("peers", set(MODULES))):
        unknown = set((getattr(options, option) or "").split(",")) - known - {""}
        if unknown:
            parser.error(f"--{option} knows {', '.join(sorted(known))}, but not {', '.join(sorted(unknown))}")
    return options


def run(bench: Workbench, chosen: Sequence[str], out: IO[str] | None) -> Iterator[Figure]:
    """Run the chosen measures, and write each figure down when it is found."""
    for name in chosen:
        begin = time.monotonic()
        for figure in measured(bench, name):
            if out:
                print(as_line(figure), file=out, flush=True)
            yield figure
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def measured(bench: Workbench, name: str) -> Iterator[Figure]:
    if name in FILES:
        yield from run_file(name, quick=bench.size.name in ("tiny", "small"))
    else:
        yield from importlib.import_module(f"benchmarks.measures.{name}").measure(bench)


def circumstances(size: str, seed: int, runs: int) -> dict[str, Any]:
    """Circumstances of the run, which a reader of the figures must know."""
    found = {"size": size, "seed": seed, "runs": runs, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        **found,
        "revision": revision.stdout.strip(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": sys.version.split()[0],
        "packages": versions,
    }


def write_line(out: IO[str] | None, fields: dict[str, Any]) -> None:
    if out:
        print(json.dumps(fields), file=out, flush=True)


if __name__ == "__main__":
    main()
