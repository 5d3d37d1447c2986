"""The sizes of a run: how many keys, changes and commits each measure has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.loads.stream import Shape

LATE_SHARES = (0.0, 0.001, 0.01, 0.1)

USED = Shape(100_000, 5, 50_000)


@dataclass(frozen=True)
class Size:
    """The shapes of one size."""

    name: str
    long: dict[int, Shape]  # the histories that are read, by factor
    peers: Shape  # what every peer gets, too
    compacted: Shape  # what is committed without compaction and then compacted
    swept: dict[int, Shape]  # histories for each late share, by factor
    small_commits: tuple[int, ...]  # after how many commits of ten rows to look
    points: int  # point reads in one sample
    first_use: Shape = USED  # large enough for compiled loops to be loaded

    def sweep(self) -> list[Shape]:
        return [replace(shape, late=late) for shape in self.swept.values() for late in LATE_SHARES]


SIZES = {
    "tiny": Size(
        "tiny",
        long={10: Shape(200, 10, 500), 100: Shape(20, 100, 500)},
        peers=Shape(200, 10, 400),
        compacted=Shape(200, 10, 400),
        swept={10: Shape(50, 10, 250)},
        small_commits=(10, 15),
        points=50,
        first_use=Shape(200, 5, 100),
    ),
    "small": Size(
        "small",
        long={10: Shape(20_000, 10, 5_000), 100: Shape(4_000, 100, 10_000)},
        peers=Shape(10_000, 10, 1_000),
        compacted=Shape(20_000, 10, 10_000),
        swept={10: Shape(5_000, 10, 2_500), 100: Shape(1_000, 100, 5_000)},
        small_commits=(100, 500),
        points=500,
    ),
    "default": Size(
        "default",
        long={10: Shape(500_000, 10, 100_000), 100: Shape(100_000, 100, 100_000)},
        peers=Shape(200_000, 10, 20_000),
        compacted=Shape(200_000, 10, 100_000),
        swept={10: Shape(100_000, 10, 20_000), 100: Shape(10_000, 100, 20_000)},
        small_commits=(100, 5_000),
        points=2_000,
    ),
    "large": Size(
        "large",
        long={10: Shape(1_000_000, 10, 100_000), 100: Shape(300_000, 100, 100_000)},
        peers=Shape(1_000_000, 10, 100_000),
        compacted=Shape(1_000_000, 10, 100_000),
        swept={10: Shape(300_000, 10, 100_000), 100: Shape(50_000, 100, 100_000)},
        small_commits=(100, 5_000, 100_000),
        points=2_000,
    ),
}
