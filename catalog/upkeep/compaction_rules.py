"""The numbers that decide when compaction is due and how much one step of it does.

Their reasons and the measured figures are in docs/decisions/010-compaction.md.
"""

from __future__ import annotations

from dataclasses import dataclass

ROW_BYTES = 120  # memory that a step takes for each row it reads, as measured, its columns and buffers included


@dataclass(frozen=True)
class Rules:
    """Limits of compaction. ``memory`` is in bytes."""

    memory: int = 256 << 20
    ended_share: float = 0.55
    """Ended rows among open segments and deltas, in units of live rows, that make a rewrite due. A read of the newest
    rows costs about as much with one in twenty of them as with this share, because both copy the rows of every batch.
    """
    idle_share: float = 0.05
    """Limit in place of ``ended_share`` when no writer has committed for a while."""
    closing_share: float = 0.01
    """Limit in place of ``ended_share`` when a writer closes its handle: a scan passes batches without ended rows as
    they are stored, and copies the others."""
    closing_rows: int = 1 << 19
    """Rows of ended rows' segments that a step reads at most when a writer closes its handle; larger steps are left to
    the next writer."""
    overdue: int = 4
    """Such larger steps are not left any more when a tier has so many times the segments that make a merge due."""
    small_store: int = 50_000
    """Ended rows that are too few for a rewrite while commits come."""
    small_idle: int = 2_000
    """Ended rows that are too few for a rewrite when no writer has committed for a while, or closes its handle. Fewer
    are read fast as they are, and the commits of a small store keep their numbers 1, 2, 3."""
    small_fan_in: int = 64
    idle_fan_in: int = 24
    fan_in: int = 8
    """Segments of about one size that are merged into one; ``small_fan_in`` is for those of less than a tier while
    commits come, ``idle_fan_in`` for these later."""
    tier_rows: int = 4_096
    """Rows below which a segment is small; each further tier has `fan_in` times as many rows."""
    mixed_rows: int = 1_024
    """A merge of deltas with fewer ended rows leaves these in the delta."""
    fold_share: float = 0.25
    """Pending closures of a closed segment, in units of its rows, that make a rewrite due."""
    fold_lists: int = 64
    """Lists of pending closures of a segment that make a rewrite due; one more for each ``list_rows`` of its rows."""
    list_rows: int = 128
    block_share: float = 0.125
    block_rows: int = 32_768
    """Rows of a block of ended rows: ``block_share`` of the live rows, but at least ``block_rows``."""
    task_rows: int = 1 << 17
    """Rows that are worth a task of their own where tasks compact or rebuild a store."""
    slice_blocks: int = 6
    """Blocks of a file in an object store that are cut at one more start of their rows."""

    @property
    def step_rows(self) -> int:
        """Return the number of rows that one step reads at most, unless a single segment has more."""
        return max(self.memory // ROW_BYTES, 2 * self.tier_rows)

    @property
    def file_rows(self) -> int:
        """Return the number of rows of a closed segment that is merged no further."""
        return self.step_rows // 2

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of decompressed columns of its inputs that a step keeps at most."""
        return self.memory // 8

    @property
    def open_bytes(self) -> int:
        """Return the size of a segment of open rows, whose columns are in memory when it is written."""
        return self.memory // 4

    def tier(self, rows: int) -> int:
        """Return the number of the tier of a segment; 0 for a small one."""
        tier, limit = 0, self.tier_rows
        while rows >= limit:
            tier, limit = tier + 1, limit * self.fan_in
        return tier


DEFAULT = Rules()
