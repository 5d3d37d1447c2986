import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job with every kind of state, in the API that Flink has had since 1.11, and its snapshots.
 *
 * Usage: RunRelease FOLDER NAME:BACKEND:INCREMENTAL:COMPRESSED:STEPS...
 *
 * Each run writes into FOLDER/NAME. STEPS are separated by commas: checkpoint, savepoint, canonical, native. Event v of 120 has the key user-(v mod 7) and
 * the time v seconds; tests/formats/flink/test_source.py says what each state then has.
 */
public final class RunRelease {
    static final long EVENTS = 120;
    /** Events up to this number are emitted, all of them before the last checkpoint. */
    static volatile long gate;

    public enum Grade { LOW, MID, HIGH }

    /** A POJO. */
    public static class Basket {
        public String owner;
        public int items;
        public Long total;
        public double share;
    }

    static final class Events implements Release.Source, CheckpointedFunction {
        private volatile boolean running = true;
        private long next;
        private transient ListState<Long> position;

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            while (running) {
                synchronized (context.getCheckpointLock()) {
                    if (next < gate) context.collect(next++);
                }
                if (next >= gate) Thread.sleep(5);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            position = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("pos", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            position.update(Collections.singletonList(next));
        }
    }

    static final class Baskets extends KeyedProcessFunction<String, Long, Long> {
        @Override
        public void processElement(Long v, Context context, Collector<Long> out) throws Exception {
            ValueState<Long> count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            count.update(count.value() == null ? 1 : count.value() + 1);
            getRuntimeContext().getListState(new ListStateDescriptor<>("items", Types.STRING)).add("i" + v);
            getRuntimeContext().getMapState(new MapStateDescriptor<>("by-day", Types.STRING, Types.LONG)).put("d" + v % 3, v);
            ReduceFunction<Long> larger = (left, right) -> Math.max(left, right);
            getRuntimeContext().getReducingState(new ReducingStateDescriptor<>("top", larger, Types.LONG)).add(v);
            getRuntimeContext().getState(new ValueStateDescriptor<>("grade", Types.ENUM(Grade.class))).update(Grade.values()[(int) (v % 3)]);
            ValueStateDescriptor<Long> fading = new ValueStateDescriptor<>("fading", Types.LONG);
            fading.enableTimeToLive(Release.ttl());
            getRuntimeContext().getState(fading).update(v);
            TypeInformation<Tuple2<Long, String>> pair = Types.TUPLE(Types.LONG, Types.STRING);
            getRuntimeContext().getState(new ValueStateDescriptor<>("pair", pair)).update(Tuple2.of(v, v % 4 == 0 ? "" : "p" + v));
            ValueState<Basket> basket = getRuntimeContext().getState(new ValueStateDescriptor<>("basket", Basket.class));
            Basket found = basket.value();
            if (found == null) found = new Basket();
            found.owner = context.getCurrentKey();
            found.items++;
            if (found.items > 2) found.total = (found.total == null ? 0 : found.total) + v;
            found.share = found.items / 4.0;
            basket.update(found);
            context.timerService().registerProcessingTimeTimer(4102444800000L + v);
            out.collect(v);
        }
    }

    static final class Rules extends KeyedBroadcastProcessFunction<String, Long, Long, Long> {
        static final MapStateDescriptor<String, Long> RULES = new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);

        @Override
        public void processElement(Long v, ReadOnlyContext context, Collector<Long> out) {
            out.collect(v);
        }

        @Override
        public void processBroadcastElement(Long v, Context context, Collector<Long> out) throws Exception {
            context.getBroadcastState(RULES).put("r" + v % 3, v);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int status = 1;
        try {
            for (int i = 1; i < arguments.length; i++) {
                String[] plan = arguments[i].split(":");
                run(Paths.get(arguments[0]).toAbsolutePath().resolve(plan[0]), plan[1], plan[2], plan[3], plan[4].split(","));
            }
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        System.exit(status); // threads of Flink may still run
    }

    private static void run(Path folder, String backend, String incremental, String compressed, String[] steps) throws Exception {
        Files.createDirectories(folder);
        gate = EVENTS / 2;
        Configuration c = new Configuration();
        String here = "file://" + folder;
        for (String key : new String[] {"state.checkpoints.dir", "state.savepoints.dir", "execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"})
            c.setString(key, here);
        c.setString("state.backend", backend);
        c.setString("state.backend.type", backend);
        c.setString("state.backend.incremental", incremental);
        c.setString("execution.checkpointing.incremental", incremental);
        c.setString("execution.checkpointing.snapshot-compression", compressed);
        c.setString("execution.checkpointing.interval", "400ms");
        c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        c.setString("rest.bind-port", "0");
        c.setString("rest.port", "0");
        c.setString("taskmanager.memory.managed.size", "64mb");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, c);
        env.setMaxParallelism(128);
        if (compressed.equals("true")) compress(env.getConfig());
        build(env);
        JobClient job = env.executeAsync();
        long first = completed(folder, 0);
        gate = EVENTS;
        long last = completed(folder, completed(folder, first) + 1); // begun after all events were emitted and read
        for (String step : steps)
            if (!step.equals("checkpoint")) savepoint(job, here, step);
        if (Stream.of(steps).anyMatch("checkpoint"::equals)) completed(folder, last);
        job.cancel().get();
        try {
            while (!job.getJobStatus().get().isGloballyTerminalState()) Thread.sleep(5);
        } catch (IllegalStateException | java.util.concurrent.ExecutionException e) {
            // the job's own cluster has ended with it
        }
    }

    private static void build(StreamExecutionEnvironment env) {
        DataStream<Long> events = env.addSource(new Events(), "events", Types.LONG).setParallelism(1).uid("src");
        KeySelector<Long, String> user = v -> "user-" + v % 7;
        DataStream<Long> baskets = events.keyBy(user, Types.STRING).process(new Baskets()).returns(Types.LONG).uid("baskets");
        DataStream<Long> timed = events.assignTimestampsAndWatermarks(
            WatermarkStrategy.<Long>forMonotonousTimestamps().withTimestampAssigner((v, before) -> v * 1000)).setParallelism(1).uid("times");
        KeySelector<Long, Long> five = v -> v % 5;
        DataStream<Long> windows = timed.keyBy(five, Types.LONG).window(Release.windows())
            .reduce((left, right) -> left + right).returns(Types.LONG).uid("win");
        DataStream<Long> tens = events.filter(v -> v % 10 == 0).setParallelism(1).uid("tens");
        DataStream<Long> ruled = baskets.keyBy(user, Types.STRING).connect(tens.broadcast(Rules.RULES)).process(new Rules()).returns(Types.LONG).uid("bro");
        ruled.filter(v -> false).uid("out").print().uid("out-sink");
        windows.filter(v -> false).uid("out2").print().uid("out2-sink");
    }

    /** Waits until a checkpoint after the one with this number is complete; returns its number. */
    private static long completed(Path folder, long after) throws Exception {
        long seen = -1;
        while (true) {
            long found = -1;
            try (Stream<Path> all = Files.find(folder, 3, (path, is) -> path.endsWith("_metadata") && path.getParent().getFileName().toString().startsWith("chk-"))) {
                found = all.mapToLong(path -> Long.parseLong(path.getParent().getFileName().toString().substring(4))).max().orElse(-1);
            } catch (java.io.UncheckedIOException e) {
                continue; // Flink removes older ones meanwhile
            }
            if (found > after && found == seen) return found;
            seen = found;
            Thread.sleep(150); // the file is there before its checkpoint counts
        }
    }

    private static void savepoint(JobClient job, String here, String form) throws Exception {
        Object found = null;
        for (Method each : JobClient.class.getMethods())
            if (each.getName().equals("triggerSavepoint")) {
                if (form.equals("savepoint") && each.getParameterCount() == 1) found = each.invoke(job, here);
                if (!form.equals("savepoint") && each.getParameterCount() == 2) {
                    Object type = each.getParameterTypes()[1].getMethod("valueOf", String.class).invoke(null, form.toUpperCase());
                    found = each.invoke(job, here, type);
                }
            }
        String where = (String) ((CompletableFuture<?>) found).get();
        System.out.println(form + " " + where.substring(where.lastIndexOf('/') + 1));
    }

    private static void compress(Object config) throws Exception {
        try {
            config.getClass().getMethod("setUseSnapshotCompression", boolean.class).invoke(config, true);
        } catch (NoSuchMethodException e) {
            // by the configuration
        }
    }
}
