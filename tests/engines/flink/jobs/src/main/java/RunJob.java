import java.lang.reflect.Method;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamGraphHasherV2;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.util.StringUtils;

/**
 * Runs a job on a cluster in this process and takes snapshots of it.
 *
 * Usage: RunJob JOB --dir FOLDER --steps STEPS [--option value]...
 *
 * STEPS are separated by commas: emit:N (events), flow:N (each 20 ms, until there is a file stop in the folder), chk, full, canonical, native, finish (wait until a bounded source has
 * ended), restart[:option=value;...] (cancel; start again from the last snapshot, with changed options), wait:MS (for
 * what Flink does by itself, such as to materialize the state of the changelog backend), positions (of the source in the
 * checkpoints that Flink took by itself, in positions.jsonl; the last ones are then kept).
 * The folder gets the snapshots, a truth file for each and manifest.json.
 */
public final class RunJob {
    /** IDs of the operators without uid, by their names; SQL has such operators. */
    static final Map<String, String> NAMES = new TreeMap<>();

    private final Job job;
    private final Map<String, String> options = new HashMap<>();
    private final Path folder;
    private final List<String> snapshots = new ArrayList<>();
    private final Map<String, String> operators = new TreeMap<>();
    private MiniCluster cluster;
    private JobID id;
    private String last;

    private RunJob(Job job, String[] arguments) {
        this.job = job;
        for (int i = 0; i + 1 < arguments.length; i += 2) options.put(arguments[i].substring(2), arguments[i + 1]);
        folder = Paths.get(options.get("dir")).toAbsolutePath();
    }

    public static void main(String[] arguments) throws Exception {
        String[] rest = java.util.Arrays.copyOfRange(arguments, 1, arguments.length);
        Job job = (Job) Class.forName(arguments[0]).getDeclaredConstructor().newInstance();
        int status = 1;
        try {
            new RunJob(job, rest).run();
            status = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        System.exit(status); // threads of Flink may still run
    }

    private void run() throws Exception {
        Files.createDirectories(folder);
        if (options.containsKey("url")) FileSystem.initialize(configuration(), null);
        int slots = Integer.parseInt(options.getOrDefault("slots", "4"));
        MiniClusterConfiguration settings = new MiniClusterConfiguration.Builder().setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(slots).setConfiguration(configuration()).build();
        cluster = new MiniCluster(settings);
        cluster.start();
        start();
        for (String step : options.get("steps").split(",")) {
            String[] parts = step.split(":", 2);
            switch (parts[0]) {
                case "emit":
                    GatedSource.GATE.addAndGet(Long.parseLong(parts[1]));
                    for (int i = 0; i < GatedSource.splits; i++)
                        while (GatedSource.NEXT.get(i) < GatedSource.GATE.get()) pause();
                    break;
                case "flow": // events until somebody makes the file "stop"
                    while (!Files.exists(folder.resolve("stop"))) {
                        GatedSource.GATE.addAndGet(Long.parseLong(parts[1]));
                        Thread.sleep(20);
                    }
                    break;
                case "finish":
                    cluster.triggerCheckpoint(id, CheckpointType.DEFAULT).get(); // subtasks wait for one before they finish
                    while (!someFinished()) pause();
                    break;
                case "positions": // of the source at the checkpoints that Flink took by itself; they may be gone
                    StringBuilder lines = new StringBuilder();
                    GatedSource.POSITIONS.forEach((checkpoint, next) -> lines.append("{\"checkpoint\": " + checkpoint + ", \"events\": "
                        + next + ", \"complete\": " + GatedSource.COMPLETE.contains(checkpoint) + "}\n"));
                    Files.writeString(folder.resolve("positions.jsonl"), lines);
                    break;
                case "wait":
                    Thread.sleep(Long.parseLong(parts[1]));
                    break;
                case "restart":
                    cancel();
                    if (parts.length > 1)
                        for (String change : parts[1].split(";")) options.put(change.split("=", 2)[0], change.split("=", 2)[1]);
                    options.put("from", last);
                    Truth.forgetOperatorState();
                    start();
                    break;
                default:
                    snapshot(parts[0]);
            }
        }
        cancel();
        cluster.close();
        forgetOthers();
        writeManifest();
    }

    /** Where snapshots are written: the folder, or the option url, by which an object store knows it. */
    private String url() {
        return options.getOrDefault("url", "file://" + folder);
    }

    private Configuration configuration() {
        Map<String, String> c = new HashMap<>();
        String here = url();
        c.put("state.backend.type", options.getOrDefault("backend", "rocksdb"));
        c.put("execution.checkpointing.incremental", options.getOrDefault("incremental", "true"));
        c.put("execution.checkpointing.dir", here);
        c.put("execution.checkpointing.savepoint-dir", here);
        c.put("execution.checkpointing.interval", "24h");
        c.put("execution.checkpointing.num-retained", "50");
        c.put("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        c.put("execution.checkpointing.data-inline-threshold", options.getOrDefault("inline", "0b"));
        c.put("execution.checkpointing.snapshot-compression", options.getOrDefault("compress", "false"));
        c.put("parallelism.default", options.getOrDefault("parallelism", "2"));
        c.put("pipeline.max-parallelism", options.getOrDefault("maxparallelism", "128"));
        c.put("restart-strategy.type", "none");
        c.put("rest.port", "0");
        c.put("rest.bind-port", "0");
        c.put("state.backend.rocksdb.localdir", folder + "-work");
        c.put("taskmanager.memory.managed.size", options.getOrDefault("managed", "64mb"));
        c.put("taskmanager.memory.network.min", "16mb");
        c.put("taskmanager.memory.network.max", "16mb");
        if (options.containsKey("changelog")) {
            c.put("state.changelog.enabled", "true");
            c.put("state.changelog.storage", "filesystem");
            c.put("dstl.dfs.base-path", here);
            c.put("dstl.dfs.compression.enabled", options.getOrDefault("compress", "false"));
            c.put("state.changelog.periodic-materialize.enabled", String.valueOf(!options.get("changelog").equals("never")));
            if (!options.get("changelog").equals("never")) c.put("state.changelog.periodic-materialize.interval", options.get("changelog"));
        }
        if (options.containsKey("timers")) c.put("state.backend.rocksdb.timer-service.factory", options.get("timers"));
        if (options.containsKey("extra"))
            for (String each : options.get("extra").split("#")) c.put(each.split("=", 2)[0], each.split("=", 2)[1]);
        if (options.containsKey("from")) {
            String from = options.get("from");
            c.put("execution.state-recovery.path", from.contains("://") ? from : "file://" + from);
            c.put("execution.state-recovery.claim-mode", options.getOrDefault("claim", "NO_CLAIM"));
            c.put("execution.state-recovery.ignore-unclaimed-state", options.getOrDefault("ignore", "false"));
        }
        return Configuration.fromMap(c);
    }

    private void start() throws Exception {
        Configuration configuration = configuration();
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        job.build(env, options);
        StreamGraph plan = env.getStreamGraph();
        for (StreamNode node : plan.getStreamNodes())
            if (node.getTransformationUID() != null) operators.put(node.getTransformationUID(), operatorId(node.getTransformationUID()));
        new StreamGraphHasherV2().traverseStreamGraphAndGenerateHashes(plan).forEach((node, hash) -> {
            StreamNode found = plan.getStreamNode(node);
            if (found.getTransformationUID() == null) NAMES.put(found.getOperatorName(), StringUtils.byteToHexString(hash));
        });
        JobGraph graph = plan.getJobGraph();
        if (options.containsKey("from"))
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.fromConfiguration(configuration));
        id = graph.getJobID();
        cluster.submitJob(graph).get();
        while (!started()) {
            if (cluster.getJobStatus(id).get().isGloballyTerminalState()) failed();
            pause();
        }
    }

    private boolean started() throws Exception {
        if (cluster.getJobStatus(id).get() != JobStatus.RUNNING) return false;
        for (AccessExecutionVertex each : cluster.getExecutionGraph(id).get().getAllExecutionVertices())
            if (each.getExecutionState() != ExecutionState.RUNNING && each.getExecutionState() != ExecutionState.FINISHED) return false;
        return true;
    }

    /** True once as many subtasks have finished as the option says. */
    private boolean someFinished() throws Exception {
        int finished = 0;
        for (AccessExecutionVertex each : cluster.getExecutionGraph(id).get().getAllExecutionVertices())
            if (each.getExecutionState() == ExecutionState.FINISHED) finished++;
        return finished >= Integer.parseInt(options.getOrDefault("finished", "1"));
    }

    private void cancel() throws Exception {
        cluster.cancelJob(id).get();
        while (!cluster.getJobStatus(id).get().isGloballyTerminalState()) pause();
        if (cluster.getJobStatus(id).get() == JobStatus.FAILED) failed();
    }

    private void failed() throws Exception {
        throw new IllegalStateException(String.valueOf(cluster.getExecutionGraph(id).get().getFailureInfo() == null
            ? cluster.getJobStatus(id).get() : cluster.getExecutionGraph(id).get().getFailureInfo().getExceptionAsString()));
    }

    private void snapshot(String kind) throws Exception {
        String name;
        Path where;
        try {
            switch (kind) {
                case "chk":
                case "full":
                    CheckpointType type = kind.equals("chk") ? CheckpointType.DEFAULT : CheckpointType.FULL;
                    where = folder.resolve(id.toString()).resolve("chk-" + cluster.triggerCheckpoint(id, type).get());
                    name = "checkpoint";
                    break;
                case "canonical":
                case "native":
                    SavepointFormatType format = kind.equals("native") ? SavepointFormatType.NATIVE : SavepointFormatType.CANONICAL;
                    String url = cluster.triggerSavepoint(id, url(), false, format).get();
                    where = folder.resolve(url.substring(url.lastIndexOf('/') + 1));
                    name = "savepoint-" + kind;
                    break;
                default:
                    throw new IllegalArgumentException(kind);
            }
        } catch (java.util.concurrent.ExecutionException e) {
            if (cluster.getJobStatus(id).get() != JobStatus.RUNNING) failed();
            throw e;
        }
        last = where.toString();
        long events = GatedSource.GATE.get();
        job.derive(events);
        String truth = "truth-" + (snapshots.size() + 1) + ".jsonl";
        Truth.write(folder.resolve(truth));
        byte[] metadata = Files.readAllBytes(where.resolve("_metadata"));
        java.nio.ByteBuffer head = java.nio.ByteBuffer.wrap(metadata);
        snapshots.add("{\"kind\": \"" + name + "\", \"path\": \"" + folder.relativize(where) + "\", \"truth\": \"" + truth
            + "\", \"events\": " + events + ", \"checkpoint_id\": " + head.getLong(8) + ", \"metadata_version\": " + head.getInt(4)
            + ", \"parallelism\": " + options.getOrDefault("parallelism", "2") + ", \"max_parallelism\": "
            + options.getOrDefault("maxparallelism", "128") + "}");
    }

    /** Removes the checkpoints that no step asked for, such as the first one, which Flink takes when a job starts. */
    private void forgetOthers() throws Exception {
        if (options.get("steps").contains("positions")) return;
        try (java.util.stream.Stream<Path> found = Files.find(folder, 2, (path, is) -> path.getFileName().toString().startsWith("chk-"))) {
            for (Path each : (Iterable<Path>) found::iterator)
                if (snapshots.stream().noneMatch(text -> text.contains("\"" + folder.relativize(each) + "\""))) {
                    for (java.io.File file : each.toFile().listFiles()) file.delete();
                    each.toFile().delete();
                }
        }
    }

    private void writeManifest() throws Exception {
        List<String> ids = new ArrayList<>();
        operators.forEach((uid, id) -> ids.add("  \"" + uid + "\": \"" + id + "\""));
        List<String> names = new ArrayList<>();
        NAMES.forEach((name, id) -> names.add("  " + JsonText.of(name) + ": \"" + id + "\""));
        String text = "{\n \"engine\": \"Apache Flink " + EnvironmentInformation.getVersion() + "\",\n \"backend\": \""
            + options.getOrDefault("backend", "rocksdb") + "\",\n \"operator_ids\": {\n" + String.join(",\n", ids)
            + "\n },\n \"operator_names\": {\n" + String.join(",\n", names) + "\n },\n \"snapshots\": [\n  " + String.join(",\n  ", snapshots) + "\n ]"
            + (options.containsKey("undecodable")
                ? ",\n \"undecodable\": [\"" + options.get("undecodable").replace(",", "\", \"") + "\"]" : "") + "\n}\n";
        Files.writeString(folder.resolve("manifest.json"), text);
    }

    /** An operator's ID, by Flink's own rule (StreamGraphHasherV2). The package of the library differs by version. */
    private static String operatorId(String uid) throws Exception {
        for (int version = 30; version < 50; version++)
            try {
                Class<?> hashing = Class.forName("org.apache.flink.shaded.guava" + version + ".com.google.common.hash.Hashing");
                Object function = hashing.getMethod("murmur3_128", int.class).invoke(null, 0);
                Class<?> type = Class.forName("org.apache.flink.shaded.guava" + version + ".com.google.common.hash.HashFunction");
                Method hash = type.getMethod("hashString", CharSequence.class, Charset.class);
                return hash.invoke(function, uid, StandardCharsets.UTF_8).toString();
            } catch (ClassNotFoundException e) {
                continue;
            }
        throw new IllegalStateException("no guava");
    }

    private static void pause() throws InterruptedException {
        Thread.sleep(5);
    }
}
