"""The release of Spark that the tests run with: `.ci/run` runs a share of them with each supported one."""

from __future__ import annotations

import re

import pyspark
import pytest

_FOUND = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
assert _FOUND is not None
RELEASE = int(_FOUND[1]), int(_FOUND[2])


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Leave a test out where Spark is older than the thing that it tests."""
    return pytest.mark.skipif((major, minor) > RELEASE, reason=f"{what} came with Spark {major}.{minor}")


def skip_unknown(layout: str) -> None:
    """Skip a test where Spark is older than a layout, or has no source of its own that reads it."""
    first = 3 if "format 4" in layout else 1 if "format 3" in layout or "of format 2" in layout else 0
    if (4, first) > RELEASE:
        pytest.skip(f"{layout} came with Spark 4.{first}")
