"""Incidents as sessions: when did delays pile up at an airport, and what was recorded while they did?

    pip install 'statestore[demo]'
    python examples/delay_incidents.py [folder]

Flights that leave an hour late or more belong to one incident of their airport while no more than 30 minutes pass
between them. This is sessionization, as with the session store of Kafka Streams: find the sessions near the new event,
merge them, put the merged one. Each day is committed, so the state of each morning can be read later.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import statestore
from statestore.connector.demo.data import load

GAP_MS = 30 * 60_000
LATE_MINUTES = 60


def main(folder: Path) -> pa.Table:
    """Run everything in ``folder``; return all incidents: origin, session_start, session_end, flights."""
    flights = load().flights
    late = flights.filter(pc.greater_equal(flights["dep_delay"], LATE_MINUTES))
    times = pc.divide(late["departed"].cast(pa.int64()), 1000)
    days = pc.strftime(late["departed"], "%Y-%m-%d")
    catalog = statestore.connect(folder / "warehouse")
    with catalog.create_store(
        "incidents", kind="session", key={"origin": "string"}, value={"flights": "bigint"}, retention="400 days"
    ) as incidents:
        today = None
        for origin, time, day in zip(late["origin"].to_pylist(), times.to_pylist(), days.to_pylist(), strict=True):
            if day != today:
                incidents.commit(transaction=("incidents", int(day.replace("-", ""))))
                today = day
            add_flight(incidents, origin, time)
        incidents.commit()
        show(folder / "warehouse")
        return incidents.scan(columns=["origin", "session_start", "session_end", "flights"]).read_all()


def add_flight(incidents: statestore.SessionStore, origin: str, time: int) -> None:
    """Extend the incident that the flight belongs to, join the two that it connects, or begin one."""
    near = list(incidents.find_sessions(origin, time - GAP_MS, time + GAP_MS))
    for session in near:
        incidents.remove(origin, session.start, session.end)
    start = min([time, *(session.start for session in near)])
    end = max([time, *(session.end for session in near)])
    incidents.put(origin, start, end, 1 + sum(session.value for session in near))


def show(warehouse: Path) -> None:
    print("The five largest incidents of the year:")
    text = """
        SELECT origin, session_start, age(session_end, session_start) AS lasted, flights
        FROM incidents ORDER BY flights DESC, origin LIMIT 5
    """
    for row in statestore.sql(str(warehouse), text).to_pylist():
        print(f"  {row['origin']} from {row['session_start']:%Y-%m-%d %H:%M} UTC: {row['flights']} flights")
    print("How the incident at JFK of 8 March grew, commit by commit:")
    text = """
        SELECT _commit_version, session_end, flights FROM changes('incidents')
        WHERE origin = 'JFK' AND _change_type = 'insert' AND flights > 20
          AND session_start BETWEEN '2013-03-08 10:00Z' AND '2013-03-09 10:00Z'
        ORDER BY _commit_version
    """
    for row in statestore.sql(str(warehouse), text).to_pylist():
        print(
            f"  version {row['_commit_version']}: {row['flights']} flights until {row['session_end']:%d %B %H:%M} UTC"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
