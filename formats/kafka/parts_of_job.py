"""The sub-topologies of an application, which keep its stores, and the topics that each has read.

The names of tasks have the number of the sub-topology. The topics are those of a description of the topology, where one
is given; else those whose records a store has seen, which Kafka Streams stores with their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from statestore.formats.jobs import Job, JobInput
from statestore.formats.kafka.directory.applications import Application, StorePartition
from statestore.formats.kafka.directory.store_facts import application_facts
from statestore.formats.kafka.topology import StoreUse

GLOBAL = "global stores"


def part_of(partitions: Sequence[StorePartition]) -> str | None:
    """Return the sub-topology that has a store; several where tasks of another topology are left over."""
    found = dict.fromkeys(map(_part, partitions))
    return " and ".join(found) or None


def application_job(application: Application, topology: Mapping[str, StoreUse]) -> Job:
    """Return what the directory records of the application, and a description of its topology, if there is one."""
    known = _described(application, topology) if topology else _seen(application)
    inputs = tuple(JobInput(f"topic {topic}", parts=tuple(sorted(parts))) for topic, parts in sorted(known.items()))
    whence = (
        "Topics are those of the given topology"
        if topology
        else "Topics are those of which a store has seen records; others may be read, too"
    )
    return Job(
        f"application {application.name}",
        f"{whence}. What a sub-topology writes is not recorded in the directory.",
        ("sub-topology", "sub-topologies"),
        inputs,
    )


def _part(partition: StorePartition) -> str:
    if partition.subtopology is None:
        return GLOBAL
    named = f"{partition.topology}, " if partition.topology else ""
    return f"{named}sub-topology {partition.subtopology}"


def _described(application: Application, topology: Mapping[str, StoreUse]) -> dict[str, set[str]]:
    stores: dict[str, list[StorePartition]] = {}
    for each in application.partitions:
        stores.setdefault(each.store, []).append(each)
    pairs = (
        (topic, part)
        for store, partitions in stores.items()
        if store in topology and (part := part_of(partitions)) is not None
        for topic in topology[store].topics
    )
    return _by_topic(pairs)


def _seen(application: Application) -> dict[str, set[str]]:
    parts = {
        each: part_of([other for other in application.partitions if other.store == each]) or ""
        for each in application.stores
    }
    return _by_topic(
        (topic, parts[found.partition.store])
        for found in application_facts(application)
        for topic in found.offsets.position
    )


def _by_topic(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for topic, part in pairs:
        found.setdefault(topic, set()).add(part)
    return found
