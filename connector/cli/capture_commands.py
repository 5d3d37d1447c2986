"""The command that keeps the past of a job's state."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import NONE, Selected
from statestore.connector.terminal import form_of, say, show_line
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

if TYPE_CHECKING:
    from statestore.connector.capture.estimate import Estimate
    from statestore.connector.capture.following import CaptureEvent, Following


def capture(
    source: Annotated[
        str,
        typer.Argument(
            help="A checkpoint of Spark, a job's checkpoints of Flink, or state of Kafka Streams. It stays as it is.",
            show_default=False,
            autocompletion=args.complete_path,
        ),
    ],
    warehouse: Annotated[
        str,
        typer.Argument(
            help="Where the stores are that keep its past.", show_default=False, autocompletion=args.complete_path
        ),
    ],
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="A state to capture; may be repeated (default: all).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM or Ctrl-C.")] = False,
    every: Annotated[str, typer.Option("--every", help="How often to look for new versions.")] = "30s",
    keep: Annotated[
        str | None, typer.Option("--keep", help="Remove what ended longer ago than this.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be captured, and the disk that it takes in a day.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65_535,
            help="With --follow, figures for Prometheus on this port of 127.0.0.1; 0: one that is free.",
            show_default=False,
        ),
    ] = None,
    as_json: args.Json = False,
    selected: Selected = NONE,
) -> None:
    """Keep the past of a job's state: each version of SOURCE becomes a version of stores in WAREHOUSE.

    For example: statestore capture checkpoint warehouse --follow. Nothing is written to SOURCE. A capture that is
    repeated goes on where it ended, and captures nothing twice.
    """
    from statestore.catalog.catalog import connect
    from statestore.connector.capture.capture import captures_of, estimate_of
    from statestore.connector.capture.following import Following
    from statestore.connector.capture.looks import Looks, SourceAt
    from statestore.connector.cli.argument_texts import duration
    from statestore.formats.values.times import duration_ms

    form = form_of(None, as_json)
    if metrics_port is not None and (dry_run or not follow):
        raise InvalidInputError(ErrorCode.MISSING_OPTION, "--metrics-port goes with --follow, without --dry-run")
    if dry_run:
        _show_estimate(estimate_of(SourceAt(source, selected), warehouse, state or None), form)
        return
    wait = (duration_ms(duration(every), "--every") or 0) / 1000
    kept = None if keep is None else duration_ms(duration(keep), "--keep")
    found = SourceAt(source, selected)
    if not follow:
        found.find()  # before a warehouse is made for it
    looks = Looks(connect(warehouse), found, state or None)
    following = Following(looks, wait, kept)
    if follow:
        with _stopped_by_signals(following), following, _told(following, metrics_port) as told:
            for event in following:
                told(event)
                _show(event, form)
        say("stopped; the next capture goes on from here")
        return
    done = captures_of(following, lambda event: _show(event, form) if form == "json" else None)
    if form == "json":
        return
    for each in done.states:
        say(f"{each.state}: {each}")


def _show_estimate(found: Estimate, form: str) -> None:
    for each in found.states:
        if form == "json":
            show_line(asdict(each))
        else:
            say(f"{each.state}: {each}")
    if form != "json":
        say("nothing was written")


@contextmanager
def _told(following: Following, port: int | None) -> Iterator[Callable[[CaptureEvent], None]]:
    """Serve figures where a port is given; yield what takes in each event."""
    if port is None:
        yield lambda event: None
        return
    from statestore.connector.capture.metrics import LOOPBACK, CaptureMetrics, served

    metrics = CaptureMetrics()
    following.looked = metrics.looked
    with served(metrics, port) as found:
        say(f"metrics at http://{LOOPBACK}:{found}/metrics")
        yield metrics.took


@contextmanager
def _stopped_by_signals(following: Following) -> Iterator[None]:
    """Stop the capture by SIGTERM and Ctrl-C, after the commit that is under way; a second Ctrl-C ends it at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, frame: object) -> None:
        following.stop()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(event: CaptureEvent, form: str) -> None:
    """Print an event as a line of JSON, or say it."""
    if form == "json":
        show_line(event.fields())
        sys.stdout.flush()
        return
    say(str(event))
