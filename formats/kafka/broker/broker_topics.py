"""The topics of a cluster, as a broker lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.broker.broker_log import BrokerLog
from statestore.formats.kafka.broker.connection import ANSWER_S, BrokerAddress, connected


@dataclass(frozen=True)
class BrokerTopics:
    """Topics and their partitions; ``identity`` is the cluster's id."""

    address: BrokerAddress
    identity: str
    partitions: Mapping[str, tuple[int, ...]]
    suffix: str

    @property
    def listed(self) -> tuple[str, ...]:
        """The topics with the suffix; others are read by their names."""
        return tuple(sorted(name for name in self.partitions if name.endswith(self.suffix)))

    def has(self, topic: str) -> bool:
        return topic in self.partitions

    def logs(self, topic: str) -> tuple[BrokerLog, ...]:
        """The logs of a topic up to the ends that they have now. Raises as `connected`."""
        with connected(self.address) as connection:
            found = []
            for partition in self.partitions[topic]:
                place = connection.client.TopicPartition(topic, partition)
                ask = partial(connection.consumer.get_watermark_offsets, place, timeout=ANSWER_S)
                ends = connection.ask(ask)
                if ends is None:
                    raise InvalidInputError(
                        ErrorCode.NO_ACCESS,
                        f"{self.address}: no answer about partition {partition} of {topic} in {ANSWER_S:.0f} s; check "
                        "that the addresses which brokers advertise (advertised.listeners) are reached from here",
                    )
                found.append(BrokerLog(self.address, topic, partition, *ends))
            return tuple(found)

    def size(self, topic: str) -> tuple[int | None, int | None]:
        """A broker does not say how many bytes and files a topic has."""
        return None, None


def broker_topics(address: BrokerAddress, suffix: str) -> BrokerTopics:
    """Ask for the topics of a cluster. Raises as `connected`."""
    with connected(address) as connection:
        found = connection.ask(partial(connection.consumer.list_topics, timeout=ANSWER_S))
    partitions = {name: tuple(sorted(topic.partitions)) for name, topic in found.topics.items() if topic.partitions}
    return BrokerTopics(address, found.cluster_id or address.servers, partitions, suffix)
