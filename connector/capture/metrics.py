"""Figures of a capture that follows its source, as Prometheus reads them: at http://127.0.0.1:PORT/metrics, which no
other machine reaches.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from statestore.catalog.capture.step import newest_captured, table_of
from statestore.catalog.describe.captured_summary import oldest_row, seconds_since
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.connector.capture.following import CaptureEvent
from statestore.connector.capture.looks import Looks
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.state_table import Query
from statestore.formats.values.times import TICK

if TYPE_CHECKING:
    from prometheus_client import Metric

LOOPBACK = "127.0.0.1"
PREFIX = "statestore_capture_"


@dataclass(frozen=True)
class StateFigures:
    """Figures of one captured state; times are epoch microseconds, None: not known yet. ``behind``: versions that can
    be read and are not captured yet. ``captured``: those that this process has captured. ``gaps`` and ``missing`` are
    those of the store, so they are known after the first look only."""

    store: str
    behind: int | None = None
    captured: int = 0
    newest: int | None = None
    watermark: int | None = None
    oldest: int | None = None
    rows: int | None = None
    bytes: int | None = None
    gaps: int | None = None
    missing: int | None = None


class CaptureMetrics:
    """The figures of all states of a capture, told by its events and looks; `collect` may be called in any thread."""

    def __init__(self, now: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._states: dict[str, StateFigures] = {}
        self._waiting = False

    def took(self, event: CaptureEvent) -> None:
        """Take in an event."""
        with self._lock:
            self._waiting = event.kind == "waiting"
            if event.state is None or event.store is None:
                return
            figures = self._states.get(event.state, StateFigures(event.store))
            if event.kind == "captured" and event.time is not None:
                watermark = None if event.watermark is None else event.watermark * TICK
                figures = replace(
                    figures,
                    behind=event.behind,
                    captured=figures.captured + 1,
                    newest=event.time * TICK,
                    watermark=watermark,
                )
            elif event.missing is not None and figures.gaps is not None and figures.missing is not None:
                first, last = event.missing
                figures = replace(figures, gaps=figures.gaps + 1, missing=figures.missing + last - first + 1)
            self._states[event.state] = figures

    def looked(self, looks: Looks) -> None:
        """Take in a look that came to its end: nothing is left that could be captured. The stores say the rest."""
        found = {state: _of_store(store) for state, store in looks.stores.items()}
        with self._lock:
            self._waiting = False
            for state, figures in found.items():
                known = self._states.get(state)
                self._states[state] = figures if known is None else replace(figures, captured=known.captured)

    def collect(self) -> Iterable[Metric]:
        """Return the figures, with ages as of now, for a registry of ``prometheus_client``."""
        with self._lock:
            states, waiting, now = dict(self._states), self._waiting, self._now()
        yield from _metrics(states, waiting, now)

    def describe(self) -> Iterable[Metric]:
        """Return the figures without their values, which registries ask for to find names that are given twice."""
        return _metrics({}, False, 0)


def _of_store(store: CapturedStore) -> StateFigures:
    table, newest = table_of(store), newest_captured(store)
    if newest is None:
        return StateFigures(store.spec.name, behind=0, gaps=0, missing=0)
    planned = table.for_plan()
    log_state = planned.log_state()
    refs = {ref.name: ref.bytes for m in log_state.segments for ref in (m.file, m.index) if ref is not None}
    refs |= {each.file.name: each.file.bytes for slices in log_state.closures.values() for each in slices}
    gaps = log_state.gaps
    return StateFigures(
        store.spec.name,
        behind=0,
        newest=newest.time,
        watermark=newest.watermark,
        oldest=oldest_row(planned),
        rows=planned.count(Query()),
        bytes=sum(refs.values()),
        gaps=len(gaps),
        missing=sum(gap.last - gap.first + 1 for gap in gaps),
    )


def _age(moment: int | None, now: int) -> float | None:
    return None if moment is None else seconds_since(moment, now)


Figure = Callable[[StateFigures, int], float | None]
_GAUGES: dict[str, tuple[str, Figure]] = {
    "lag_versions": ("Versions that can be read and are not captured yet.", lambda each, now: each.behind),
    "lag_seconds": ("Seconds since the time of the newest captured version.", lambda each, now: _age(each.newest, now)),
    "rows": ("Rows of the state in its newest captured version.", lambda each, now: each.rows),
    "bytes": ("Bytes of the files that the store needs.", lambda each, now: each.bytes),
    "watermark_age_seconds": (
        "Seconds since the watermark of the newest captured version.",
        lambda each, now: _age(each.watermark, now),
    ),
    "oldest_key_age_seconds": (
        "Seconds since the row that changed longest ago changed.",
        lambda each, now: _age(each.oldest, now),
    ),
}
_COUNTERS: dict[str, tuple[str, Figure]] = {
    "gaps": ("Gaps: runs of versions that were gone before they could be captured.", lambda each, now: each.gaps),
    "missing_versions": ("Versions in gaps.", lambda each, now: each.missing),
    "captured_versions": ("Versions that this process has captured.", lambda each, now: each.captured),
}


def _metrics(states: dict[str, StateFigures], waiting: bool, now: int) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: Any = ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS))
    for family, figures in families:
        for name, (text, figure) in figures.items():
            metric = family(PREFIX + name, text, labels=("state", "store"))
            for state in sorted(states):
                value = figure(states[state], now)
                if value is not None:
                    metric.add_metric((state, states[state].store), value)
            yield metric
    waits = GaugeMetricFamily(PREFIX + "waiting", "1 while the source cannot be reached.")
    waits.add_metric((), int(waiting))
    yield waits


@contextmanager
def served(metrics: CaptureMetrics, port: int) -> Iterator[int]:
    """Answer Prometheus on a port of this machine, until the block ends; yield the port, which 0 lets the system
    choose.

    Raises NotFoundError METRICS_NOT_INSTALLED, InvalidInputError INVALID_OPTION for a port that cannot be had.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise NotFoundError(
            ErrorCode.METRICS_NOT_INSTALLED,
            "--metrics-port needs the package prometheus-client; type: pip install 'statestore[capture]'",
        )
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, LOOPBACK, registry)
    except OSError as error:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"--metrics-port {port}: {LOOPBACK}:{port} cannot be had ({error.strerror}); name a port that is free",
        ) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
