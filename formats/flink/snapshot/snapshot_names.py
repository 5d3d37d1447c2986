"""Names by which Flink's folders are recognised: those of jobs, checkpoints and savepoints, and their file of
metadata."""

from __future__ import annotations

import re

METADATA = "_metadata"
"""The file of a snapshot that names its others."""
JOB = re.compile(r"[0-9a-f]{32}")
SAVEPOINT = re.compile(r"savepoint-([0-9a-f]{6})-[0-9a-f]{12}")
CHECKPOINT = re.compile(r"chk-([1-9][0-9]{0,18}|0)")
