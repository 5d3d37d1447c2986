"""Build the wheel and the source distribution, check them, and use the wheel in an environment with nothing else.

``.venv/bin/python .ci/packages.py``, from the root of the clone, which ``./run check`` has prepared.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("connector", "catalog", "formats", "pyspark_statestore")
PACKED = (*SOURCES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
SMOKE = """
import sys, statestore
prices = statestore.connect("warehouse").create_store("prices", key={"item": "string"}, value={"price": "double"})
prices.put("curry", 8.0, timestamp=1714550400000)
prices.commit()
assert prices.get("curry").value == 8.0
prices.close()
assert statestore.sql("warehouse", "SELECT count(*) AS n FROM prices").to_pylist() == [{"n": 1}]
assert not {"pyspark", "pandas", "numba"} & set(sys.modules), "the smoke test must run without extras"
print("statestore", statestore.__version__)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="statestore-packages-") as folder:
        check(Path(folder))


def check(work: Path) -> None:
    clone, unpacked = work / "clone", work / "unpacked"
    # A copy of what git has: neither build/ of an earlier run nor files that nobody committed get into the packages.
    clone.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z", "--", *PACKED], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    sdist, wheel = build(clone, work / "dist")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (inside,) = unpacked.iterdir()
    _, again = build(inside, work / "again")
    assert contents(wheel) == contents(again), "the wheel that the sdist builds is another one"
    missing = expected() - set(contents(wheel))
    assert not missing, f"the wheel lacks {sorted(missing)}"
    bare = work / "bare"
    run(oldest_python(), "-m", "venv", bare)
    run(bare / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    use = work / "use"  # where the clone's folders cannot be imported instead
    use.mkdir()
    run(bare / "bin" / "python", "-c", SMOKE, cwd=use)
    run(bare / "bin" / "statestore", "--help", cwd=use, stdout=subprocess.DEVNULL)
    for engine in ("kafka", "flink", "spark"):
        shutil.copytree(ROOT / "tests" / "data" / engine, use / engine)
    run(bare / "bin" / "python", ROOT / ".ci" / "bare_doors.py", use, cwd=use)


def oldest_python() -> str:
    """Return the system's Python 3.11 where it is older than this one and can make environments, else this one.

    Distributions keep an early release of the oldest minor version that setup.cfg names (Debian 12 has 3.11.2).
    """
    test = "import ensurepip, sys; print(*sys.version_info[:3])"
    for path in ("/usr/bin/python3.11", "/usr/bin/python3"):
        if Path(path).exists():
            found = subprocess.run([path, "-c", test], capture_output=True, text=True)
            version = tuple(int(part) for part in found.stdout.split())
            if found.returncode == 0 and (3, 11) <= version < sys.version_info[:3]:
                return path
    return sys.executable


def build(source: Path, out: Path) -> tuple[Path, Path]:
    """Build a source distribution and a wheel from a folder, each from the folder itself."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", out, source, quiet=True)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def expected() -> set[str]:
    """Return the name in the wheel of each package's first file, and of both markers of types."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = config["options"]["packages"].split()
    markers = {"statestore/py.typed", "pyspark_statestore/py.typed"}
    return {f"{package.replace('.', '/')}/__init__.py" for package in packages} | markers


def run(*command: object, cwd: Path = ROOT, stdout: int | None = None, quiet: bool = False) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE if quiet else stdout,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout or ''}\nfailed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
