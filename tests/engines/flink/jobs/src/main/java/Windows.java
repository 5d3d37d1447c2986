import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Windows of each kind, and joins over time. The truth follows from the events alone. */
public final class Windows implements Job {
    private static final long SIZE = 60_000, SLIDE = 40_000, LONG = 120_000, GAP = 17_500;
    private Map<String, String> options;

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        this.options = options;
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        KeyedStream<Long, String> keyed = events.keyBy(Windows::key, Types.STRING);
        keyed.window(SlidingEventTimeWindows.of(Duration.ofMillis(LONG), Duration.ofMillis(SLIDE)))
            .aggregate(new Sum(), Types.TUPLE(Types.LONG, Types.LONG), Types.LONG).uid("sliding").sinkTo(new DiscardingSink<>());
        keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis(SIZE))).allowedLateness(Duration.ofMillis(30_000)).process(new Nothing<>(), Types.LONG).uid("late")
            .sinkTo(new DiscardingSink<>());
        events.filter(Windows::inSession).setParallelism(1).uid("pauses").keyBy(id -> id % 17, Types.LONG)
            .window(EventTimeSessionWindows.withGap(Duration.ofMillis(GAP))).process(new Nothing<>(), Types.LONG).uid("sessions").sinkTo(new DiscardingSink<>());
        keyed.countWindow(5).reduce(Long::sum).uid("count").sinkTo(new DiscardingSink<>());

        if (options.getOrDefault("odd", "true").equals("true")) {
            keyed.countWindow(4, 3).process(new Nothing<>(), Types.LONG).uid("count-evicting").sinkTo(new DiscardingSink<>());
            keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis(SIZE))).evictor(CountEvictor.of(2)).process(new Nothing<>(), Types.LONG).uid("evicting")
                .sinkTo(new DiscardingSink<>());
            DataStream<Long> odd = events.filter(id -> id % 2 == 1).setParallelism(1).uid("odd");
            keyed.intervalJoin(odd.keyBy(Windows::key, Types.STRING)).between(Duration.ofMillis(-20_000), Duration.ofMillis(10_000))
                .process(new Pairs(), Types.LONG).uid("interval-join").sinkTo(new DiscardingSink<>());
        }
    }

    static String key(Long id) {
        return "k" + id % 9;
    }

    static boolean inSession(long id) {
        return id / 17 % 5 < 3;
    }

    @Override public void derive(long n) {
        Arrays.asList("sliding", "late", "sessions", "count", "count-evicting", "evicting", "interval-join").forEach(Truth::forget);
        long mark = (n - 1) * 1000;
        Map<Tuple2<String, TimeWindow>, long[]> sliding = new LinkedHashMap<>();
        Map<Tuple2<String, TimeWindow>, List<Long>> late = new LinkedHashMap<>();
        Map<Long, List<List<Long>>> sessions = new TreeMap<>();
        Map<String, List<Long>> all = new TreeMap<>();
        for (long id = 0; id < n; id++) {
            long time = id * 1000;
            for (long start = time - time % SLIDE; start > time - LONG; start -= SLIDE) {
                long[] sum = sliding.computeIfAbsent(Tuple2.of(key(id), new TimeWindow(start, start + LONG)), key -> new long[2]);
                sum[0] += id;
                sum[1]++;
            }
            late.computeIfAbsent(Tuple2.of(key(id), new TimeWindow(time - time % SIZE, time - time % SIZE + SIZE)), key -> new ArrayList<>()).add(id);
            all.computeIfAbsent(key(id), key -> new ArrayList<>()).add(id);
            if (inSession(id)) {
                List<List<Long>> mine = sessions.computeIfAbsent(id % 17, key -> new ArrayList<>());
                List<Long> last = mine.isEmpty() ? null : mine.get(mine.size() - 1);
                if (last == null || last.get(last.size() - 1) * 1000 + GAP < time) mine.add(last = new ArrayList<>());
                last.add(id);
            }
        }
        sliding.forEach((place, sum) -> {
            if (place.f1.maxTimestamp() <= mark) return;
            Truth.put("sliding", "window-contents", "aggregating", place.f0, place.f1, Tuple2.of(sum[0], sum[1]));
            timer("sliding", place.f0, place.f1, place.f1.maxTimestamp());
        });
        late.forEach((place, ids) -> {
            long cleanup = place.f1.maxTimestamp() + 30_000;
            if (cleanup <= mark) return;
            Truth.put("late", "window-contents", "list", place.f0, place.f1, ids);
            timer("late", place.f0, place.f1, cleanup);
            if (place.f1.maxTimestamp() > mark) timer("late", place.f0, place.f1, place.f1.maxTimestamp());
        });
        sessions.forEach((key, mine) -> {
            List<Object> set = new ArrayList<>();
            for (List<Long> ids : mine) {
                TimeWindow first = new TimeWindow(ids.get(0) * 1000, ids.get(0) * 1000 + GAP);
                TimeWindow whole = new TimeWindow(ids.get(0) * 1000, ids.get(ids.size() - 1) * 1000 + GAP);
                if (whole.maxTimestamp() <= mark) continue;
                Truth.put("sessions", "window-contents", "list", key, first, ids);
                timer("sessions", key, whole, whole.maxTimestamp());
                set.add(Arrays.asList(whole, first));
            }
            if (!set.isEmpty()) Truth.put("sessions", "merging-window-set", "list", key, null, set);
        });
        all.forEach((key, ids) -> {
            int open = ids.size() % 5;
            if (open > 0) {
                Truth.put("count", "window-contents", "reducing", key, null, ids.subList(ids.size() - open, ids.size()).stream().mapToLong(Long::longValue).sum());
                Truth.put("count", "count", "reducing", key, null, open);
            }
        });
        if (options.getOrDefault("odd", "true").equals("true")) {
            all.forEach((key, ids) -> {
                // An evictor runs when the window fires, every third element, and leaves the last four.
                List<Long> kept = new ArrayList<>();
                int count = 0;
                for (long id : ids) {
                    kept.add(id);
                    if (++count == 3) {
                        count = 0;
                        while (kept.size() > 4) kept.remove(0);
                    }
                }
                List<Object> stamped = new ArrayList<>();
                for (long id : kept) stamped.add(Arrays.asList(id * 1000, id));
                Truth.put("count-evicting", "window-contents", "list", key, null, stamped);
                if (count > 0) Truth.put("count-evicting", "count", "reducing", key, null, count);
                joined(key, ids, mark);
            });
            late.forEach((place, ids) -> {
                if (place.f1.maxTimestamp() <= mark) return;
                List<Object> stamped = new ArrayList<>();
                for (long id : ids) stamped.add(Arrays.asList(id * 1000, id));
                Truth.put("evicting", "window-contents", "list", place.f0, place.f1, stamped);
                timer("evicting", place.f0, place.f1, place.f1.maxTimestamp());
            });
        }
    }

    /** Buffers of the interval join: [[time, [[joined before, value]]]], until a timer cleans them up. */
    private static void joined(String key, List<Long> ids, long mark) {
        List<Object> left = new ArrayList<>(), right = new ArrayList<>();
        for (long id : ids) {
            long time = id * 1000;
            if (time + 10_000 > mark) {
                left.add(Arrays.asList(time, Arrays.asList(Arrays.asList(false, id))));
                Truth.timer("interval-join", "_timer_state/event_CLEANUP_TIMER", key, "CLEANUP_LEFT", time + 10_000, true);
            }
            if (id % 2 == 1 && time + 20_000 > mark) {
                right.add(Arrays.asList(time, Arrays.asList(Arrays.asList(false, id))));
                Truth.timer("interval-join", "_timer_state/event_CLEANUP_TIMER", key, "CLEANUP_RIGHT", time + 20_000, true);
            }
        }
        if (!left.isEmpty()) Truth.put("interval-join", "LEFT_BUFFER", "map", key, null, sorted(left));
        if (!right.isEmpty()) Truth.put("interval-join", "RIGHT_BUFFER", "map", key, null, sorted(right));
    }

    private static List<Object> sorted(List<Object> pairs) {
        TreeMap<String, Object> out = new TreeMap<>();
        for (Object each : pairs) out.put(JsonText.of(((List<?>) each).get(0)), each);
        return new ArrayList<>(out.values());
    }

    private static void timer(String operator, Object key, Object namespace, long time) {
        Truth.timer(operator, "_timer_state/event_window-timers", key, namespace, time, true);
    }

    static final class Sum implements AggregateFunction<Long, Tuple2<Long, Long>, Long> {
        @Override public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value, sum.f1 + 1);
        }

        @Override public Long getResult(Tuple2<Long, Long> sum) {
            return sum.f0;
        }

        @Override public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    static final class Nothing<K, W extends org.apache.flink.streaming.api.windowing.windows.Window> extends ProcessWindowFunction<Long, Long, K, W> {
        @Override public void process(K key, Context context, Iterable<Long> elements, Collector<Long> out) {}
    }

    static final class Pairs extends ProcessJoinFunction<Long, Long, Long> {
        @Override public void processElement(Long left, Long right, Context context, Collector<Long> out) {}
    }
}
