"""A job of PyFlink that keeps a state of each of its types, takes a savepoint and writes down what it kept.

    python states_job.py FOLDER hashmap|rocksdb CANONICAL|NATIVE

writes the savepoint to FOLDER/savepoint and the values to FOLDER/truth.json. It needs ``apache-flink`` of the version
that is to write the state, Java, and no cluster.
"""

import datetime
import decimal
import json
import sys
import time
from pathlib import Path
from typing import Any

from coder_values import plain
from pyflink.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from pyflink.common.time import Instant
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import (
    AggregateFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.datastream.window import TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway

NUMBERS, KEYS = 60, 5
FOLDER = str(Path(sys.argv[1]).absolute())
BASKET = Types.ROW_NAMED(
    ["owner", "n", "tags", "price"], [Types.STRING(), Types.INT(), Types.LIST(Types.STRING()), Types.BIG_DEC()]
)
WIDE = Types.ROW_NAMED([f"c{i}" for i in range(15)], [Types.SHORT()] * 15)


def basket(i: int) -> Any:
    return Row(
        owner=None if i % 7 == 0 else f"user-{i % KEYS} \u00e9\U0001f600",
        n=None if i % 4 == 0 else -i,
        tags=[f"t{j}" if j != 1 else None for j in range(i % 4)],
        price=decimal.Decimal(i) / 8,
    )


def wide(i: int) -> Any:
    return Row(**{f"c{j}": None if (i + j) % 3 == 0 else (i * 37 + j) % 300 - 150 for j in range(15)})


DAY = datetime.date(1969, 12, 25)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 58, 7000)
VALUES: dict[str, Any] = {
    "long": (Types.LONG(), lambda i: (-1) ** i * i * 10**16),
    "big_int": (Types.BIG_INT(), lambda i: -i),
    "int": (Types.INT(), lambda i: i * 10**7 - 3 * 10**8),
    "short": (Types.SHORT(), lambda i: i * 1000 - 30000),
    "byte": (Types.BYTE(), lambda i: i * 4 - 120),
    "boolean": (Types.BOOLEAN(), lambda i: i % 3 == 0),
    "float": (Types.FLOAT(), lambda i: i / 4 - 3),
    "double": (Types.DOUBLE(), lambda i: i / 3 - 7),
    "string": (Types.STRING(), lambda i: "\u00e9\U0001f600\x00" * (i % 4) + str(i)),
    "char": (Types.CHAR(), lambda i: chr(0x41 + i)),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), lambda i: bytes(range(i % 6))),
    "big_dec": (Types.BIG_DEC(), lambda i: decimal.Decimal(i - 30).scaleb(-(i % 5))),
    "date": (Types.SQL_DATE(), lambda i: DAY + datetime.timedelta(i * 97)),
    "time": (Types.SQL_TIME(), lambda i: datetime.time(i % 24, i, 59 - i % 60, i * 1000)),
    "timestamp": (Types.SQL_TIMESTAMP(), lambda i: MOMENT + datetime.timedelta(days=i * 300, milliseconds=i)),
    "instant": (Types.INSTANT(), lambda i: Instant(i * 10**7 - 10**8, i * 10**6 + i)),
    "list": (Types.LIST(Types.INT()), lambda i: [j if j % 3 else None for j in range(i % 5)]),
    "basic_array": (Types.BASIC_ARRAY(Types.STRING()), lambda i: [str(j) for j in range(i % 3)]),
    "object_array": (
        Types.OBJECT_ARRAY(Types.ROW_NAMED(["a"], [Types.LONG()])),
        lambda i: [Row(a=j) for j in range(i % 3)],
    ),
    "primitive_array": (Types.PRIMITIVE_ARRAY(Types.INT()), lambda i: list(range(i % 5))),
    "doubles": (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), lambda i: [j / 7 for j in range(i % 5)]),
    "map": (
        Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
        lambda i: {f"k{j}": [j, i] if j % 2 else None for j in range(i % 4)},
    ),
    "tuple": (Types.TUPLE([Types.STRING(), Types.INT(), Types.BOOLEAN()]), lambda i: (f"a{i}", i, i % 2 == 0)),
    "row": (BASKET, basket),
    "wide": (WIDE, wide),
    "pickle": (Types.PICKLED_BYTE_ARRAY(), lambda i: {"any": ["n", i]}),
}


def slowly(number: int) -> int:
    """A number, at once at first and then slowly, so that the job lasts until its savepoint."""
    if number >= NUMBERS:
        time.sleep(0.1)
    return number


def seen(operator: str, number: int) -> bool:
    """Leave a file when an operator has seen all numbers."""
    if number >= NUMBERS:
        Path(FOLDER, operator).touch()
    return number < NUMBERS


class Longest(ReduceFunction):
    def reduce(self, one: Any, other: Any) -> Any:
        return one + other


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]


class AllStates(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.values = {
            name: context.get_state(ValueStateDescriptor(f"value-{name}", kind)) for name, (kind, _) in VALUES.items()
        }
        self.lists = {
            name: context.get_list_state(ListStateDescriptor(f"list-{name}", VALUES[name][0]))
            for name in ("long", "string", "row", "list", "primitive_array", "pickle")
        }
        self.by_day = context.get_map_state(MapStateDescriptor("by-day", Types.STRING(), Types.INT()))
        self.by_number = context.get_map_state(MapStateDescriptor("by-number", Types.LONG(), BASKET))
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", Longest(), Types.LONG()))
        accumulator = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.mean = context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), accumulator))
        ttl = StateTtlConfig.new_builder(Time.days(1000)).build()
        kept = ValueStateDescriptor("kept", Types.STRING())
        kept.enable_time_to_live(ttl)
        self.kept = context.get_state(kept)
        kept_list = ListStateDescriptor("kept-list", Types.INT())
        kept_list.enable_time_to_live(ttl)
        self.kept_list = context.get_list_state(kept_list)
        kept_map = MapStateDescriptor("kept-map", Types.INT(), Types.STRING())
        kept_map.enable_time_to_live(ttl)
        self.kept_map = context.get_map_state(kept_map)

    def process_element(self, number: int, context: Any) -> None:
        if not seen("python", number):
            return
        for name, state in self.values.items():
            state.update(VALUES[name][1](number))
        for name, state in self.lists.items():
            state.add(VALUES[name][1](number))
        self.by_day.put(f"d{number % 4}", number)
        self.by_number.put(number % 3, basket(number))
        self.sum.add(number)
        self.mean.add(number)
        self.kept.update(f"n{number}")
        self.kept_list.add(number)
        self.kept_map.put(number % 2, str(number))
        context.timer_service().register_event_time_timer(4_000_000_000_000 + number)


class PickledKeys(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.last = context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, number: int, context: Any) -> None:
        if seen("pickled", number):
            self.last.update(number)


class Rules(KeyedBroadcastProcessFunction):
    RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    def process_element(self, number: int, context: Any) -> None:
        pass

    def process_broadcast_element(self, number: int, context: Any) -> None:
        if seen("rules", number):
            context.get_broadcast_state(self.RULES).put(f"r{number % 7}", number)


class Nothing(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return []


class Moments(TimestampAssigner):
    def extract_timestamp(self, value: Any, recorded: Any) -> Any:
        return value * 1000


def run(folder: str, backend: str, form: str) -> None:
    config = Configuration()
    config.set_string("state.backend.type", backend)
    config.set_string("python.fn-execution.bundle.size", "7")
    config.set_string("python.fn-execution.bundle.time", "200")
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.set_parallelism(1)
    env.set_max_parallelism(16)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    numbers = numbers.map(slowly, Types.LONG()).uid("slowly")
    by_text = numbers.key_by(lambda number: f"key-{number % KEYS}", Types.STRING())
    by_text.process(AllStates(), Types.LONG()).uid("python").set_parallelism(2)
    numbers.key_by(lambda number: ("p", number % 3)).process(PickledKeys(), Types.LONG()).uid("pickled")
    timed = numbers.filter(lambda number: seen("windows", number)).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(1)).with_timestamp_assigner(Moments())
    )
    windowed = timed.key_by(lambda number: number % 3, Types.INT())
    windowed = windowed.window(TumblingEventTimeWindows.of(Time.seconds(20)))
    windowed.process(Nothing(), Types.LONG()).uid("windows")
    by_text.connect(numbers.broadcast(Rules.RULES)).process(Rules(), Types.LONG()).uid("rules")
    job = env.execute_async("states of PyFlink")
    while not all(Path(folder, name).exists() for name in ("python", "pickled", "rules", "windows")):
        time.sleep(1)
    kind = getattr(get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType, form)
    done = job._j_job_client.stopWithSavepoint(False, str(Path(folder, "savepoint").absolute()), kind)
    print(done.get())
    Path(folder, "truth.json").write_text(json.dumps(truth(), indent=1, ensure_ascii=True))


def truth() -> dict[str, Any]:
    """What each state has when all numbers were processed, by key."""
    found: dict[str, Any] = {}
    for key in range(KEYS):
        mine = [number for number in range(NUMBERS) if number % KEYS == key]
        last = mine[-1]
        states = found[f"key-{key}"] = {}
        for name, (_, value) in VALUES.items():
            states[f"value-{name}"] = plain(value(last))
            states[f"list-{name}"] = [plain(value(number)) for number in mine]
        states["by-day"] = {f"d{number % 4}": number for number in mine}
        states["by-number"] = {number % 3: plain(basket(number)) for number in mine}
        states["sum"], states["mean"] = sum(mine), plain((sum(mine), len(mine)))
        states["kept"], states["kept-list"] = f"n{last}", mine
        states["kept-map"] = {number % 2: str(number) for number in mine}
    rules = {f"r{number % 7}": number for number in range(NUMBERS)}
    windows = [
        [key, start, [n for n in range(start, start + 20) if n % 3 == key]] for key in range(3) for start in (0, 20, 40)
    ]
    return {"by_key": found, "rules": rules, "windows": windows}


if __name__ == "__main__":
    run(*sys.argv[1:])
