"""Values in terms of JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any


def plain(value: Any) -> Any:
    """``value`` in terms of JSON: times as ISO-8601 in UTC, binary as base64, decimals and similar types as text; NaN
    and the infinities, which JSON does not have, also as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if type(value).__name__ == "MonthDayNano":  # Arrow's named tuple
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)
