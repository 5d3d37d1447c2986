import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.flink.connector.jdbc.core.datastream.sink.committer.JdbcCommitable;
import org.apache.flink.connector.jdbc.core.datastream.sink.committer.JdbcCommitableSerializer;
import org.apache.flink.connector.jdbc.core.datastream.sink.writer.JdbcWriterState;
import org.apache.flink.connector.jdbc.core.datastream.sink.writer.JdbcWriterStateSerializer;
import org.apache.flink.connector.jdbc.datasource.transactions.xa.domain.TransactionId;
import org.apache.flink.metrics.groups.SinkCommitterMetricGroup;
import org.apache.flink.runtime.metrics.groups.InternalSinkCommitterMetricGroup;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.streaming.api.connector.sink2.CommittableSummary;
import org.apache.flink.streaming.api.connector.sink2.CommittableWithLineage;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollector;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollectorSerializer;

/** Writes states of the JDBC sink that is exactly once: transactions of writers and committers. {@code FILE N SEED} */
public final class JdbcSinkBytes {
    private final Random random;
    private final ElementLines lines;

    private JdbcSinkBytes(Random random, ElementLines lines) {
        this.random = random;
        this.lines = lines;
    }

    public static void main(String[] arguments) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        JdbcSinkBytes made = new JdbcSinkBytes(
                new Random(Long.parseLong(arguments[2])),
                new ElementLines(new PrintStream(bytes, true, StandardCharsets.UTF_8)));
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            made.writer();
            made.committables();
        }
        Files.write(Path.of(arguments[0]), bytes.toByteArray());
    }

    private void writer() throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        List<TransactionId> hanging = transactions("hanging", rows), prepared = transactions("prepared", rows);
        lines.write("jdbc_writer", new JdbcWriterStateSerializer(), JdbcWriterState.of(prepared, hanging), rows);
    }

    private List<TransactionId> transactions(String state, List<Map<String, Object>> rows) {
        List<TransactionId> found = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            Map<String, Object> row = ElementLines.row("state", state);
            found.add(transaction(row, true));
            rows.add(row);
        }
        return found;
    }

    private TransactionId transaction(Map<String, Object> row, boolean attempted) {
        byte[] job = new byte[16];
        random.nextBytes(job);
        int subtask = random.nextInt(9), subtasks = subtask + 1 + random.nextInt(3), attempts = random.nextInt(4);
        long checkpoint = random.nextLong() >>> 20;
        row.putAll(ElementLines.row("job_id", HexFormat.of().formatHex(job), "subtask", subtask,
                "of_subtasks", subtasks, "transaction_checkpoint_id", checkpoint));
        if (attempted) {
            row.put("attempts", attempts);
        }
        return TransactionId.restore(job, subtask, subtasks, checkpoint, attempts);
    }

    private void committables() throws Exception {
        CommittableCollector<JdbcCommitable> collector = CommittableCollector.of(metrics());
        List<Map<String, Object>> rows = new ArrayList<>();
        for (long checkpoint = 1; checkpoint <= 1 + random.nextInt(2); checkpoint++) {
            int number = 1 + random.nextInt(2);
            collector.addMessage(new CommittableSummary<>(0, 1, checkpoint, number, 0, 0));
            for (int each = 0; each < number; each++) {
                Map<String, Object> row = ElementLines.row("checkpoint_id", checkpoint, "expected", number);
                collector.addMessage(new CommittableWithLineage<>(
                        JdbcCommitable.of(transaction(row, false)), checkpoint, 0));
                rows.add(row);
            }
        }
        lines.write("jdbc_committables", new CommittableCollectorSerializer<>(
                new JdbcCommitableSerializer(), 0, 1, metrics()), collector, rows);
    }

    private static SinkCommitterMetricGroup metrics() {
        return InternalSinkCommitterMetricGroup.wrap(
                UnregisteredMetricGroups.createUnregisteredOperatorMetricGroup());
    }
}
