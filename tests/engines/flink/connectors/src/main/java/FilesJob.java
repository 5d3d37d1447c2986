import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.RollingPolicy;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.DefaultRollingPolicy;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/** A job from files to files, stopped by nothing: it leaves a savepoint. {@code FilesJob FOLDER} */
public final class FilesJob {
    private FilesJob() {}

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        Path in = Files.createDirectories(folder.resolve("in"));
        for (int file = 0; file < 3; file++) {
            List<String> lines = new ArrayList<>();
            for (int line = 0; line < 40; line++) {
                lines.add("line " + line + " of " + file);
            }
            Files.write(in.resolve("part-" + file + ".txt"), lines);
        }
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, new Configuration());
        job.enableCheckpointing(3_600_000);
        FileSource<String> files = FileSource.forRecordStreamFormat(
                        new TextLineInputFormat(), new org.apache.flink.core.fs.Path(in.toString()))
                .monitorContinuously(java.time.Duration.ofHours(1))
                .build();
        FileSink<String> sink = sink(folder.resolve("out"), DefaultRollingPolicy.builder().build());
        FileSink<String> rolled = sink(folder.resolve("rolled"), OnCheckpointRollingPolicy.build());
        job.fromSource(files, WatermarkStrategy.noWatermarks(), "files").uid("files")
                .map(FilesJob::slowly).uid("slowly").sinkTo(sink).uid("sink");
        job.fromSource(new NumberSequenceSource(1, 1_000_000_000), WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers").map(each -> slowly(String.valueOf(each))).uid("each")
                .sinkTo(rolled).uid("rolled");
        JobClient running = job.executeAsync();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!hasLines(folder.resolve("out")) || !hasLines(folder.resolve("rolled"))) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no line was written in a minute");
            }
            Thread.sleep(50);
        }
        String taken = running.triggerSavepoint(folder.toString(), SavepointFormatType.CANONICAL).get();
        running.cancel().get();
        Path from = Path.of(java.net.URI.create(taken).getPath());
        Files.move(from, folder.resolve("savepoint"));
        System.exit(0);
    }

    private static FileSink<String> sink(Path folder, RollingPolicy<String, String> policy) {
        org.apache.flink.core.fs.Path place = new org.apache.flink.core.fs.Path(folder.toString());
        return FileSink.forRowFormat(place, new SimpleStringEncoder<String>()).withRollingPolicy(policy).build();
    }

    private static String slowly(String line) throws InterruptedException {
        Thread.sleep(20);
        return line;
    }

    private static boolean hasLines(Path out) throws Exception {
        if (!Files.isDirectory(out)) {
            return false;
        }
        try (var files = Files.walk(out)) {
            return files.anyMatch(Files::isRegularFile);
        }
    }
}
