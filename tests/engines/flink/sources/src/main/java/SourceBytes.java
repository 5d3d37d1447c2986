import com.ververica.cdc.connectors.mysql.source.offset.BinlogOffset;
import com.ververica.cdc.connectors.mysql.source.split.MySqlBinlogSplit;
import com.ververica.cdc.connectors.mysql.source.split.MySqlSnapshotSplit;
import com.ververica.cdc.connectors.mysql.source.split.MySqlSplitSerializer;
import io.debezium.relational.Column;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.history.TableChanges.TableChange;
import io.debezium.relational.history.TableChanges.TableChangeType;
import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.flink.cdc.connectors.base.source.meta.offset.Offset;
import org.apache.flink.cdc.connectors.base.source.meta.offset.OffsetFactory;
import org.apache.flink.cdc.connectors.base.source.meta.split.FinishedSnapshotSplitInfo;
import org.apache.flink.cdc.connectors.base.source.meta.split.SnapshotSplit;
import org.apache.flink.cdc.connectors.base.source.meta.split.SourceSplitSerializer;
import org.apache.flink.cdc.connectors.base.source.meta.split.StreamSplit;
import org.apache.flink.metrics.groups.SinkCommitterMetricGroup;
import org.apache.flink.runtime.metrics.groups.InternalSinkCommitterMetricGroup;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.streaming.api.connector.sink2.CommittableSummary;
import org.apache.flink.streaming.api.connector.sink2.CommittableWithLineage;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollector;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollectorSerializer;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.iceberg.BaseCombinedScanTask;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.flink.sink.IcebergSinkValues;
import org.apache.iceberg.flink.source.enumerator.IcebergEnumeratorStateSerializer;
import org.apache.iceberg.flink.source.enumerator.IcebergSourceValues;
import org.apache.iceberg.flink.source.split.IcebergSourceSplit;
import org.apache.iceberg.flink.source.split.IcebergSourceSplitSerializer;
import org.apache.iceberg.flink.source.split.IcebergSourceSplitState;
import org.apache.iceberg.flink.source.split.IcebergSourceSplitStatus;
import org.apache.iceberg.types.Types;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.flink.source.FileStoreSourceSplit;
import org.apache.paimon.flink.source.FileStoreSourceSplitSerializer;
import org.apache.paimon.table.source.DataSplit;

/**
 * Writes values with the serializers of the sources of Iceberg, Paimon and change data capture.
 * {@code SourceBytes FILE NUMBER SEED}
 */
public final class SourceBytes {
    private final Random random;
    private final ElementLines lines;

    private SourceBytes(Random random, ElementLines lines) {
        this.random = random;
        this.lines = lines;
    }

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        SourceBytes made = new SourceBytes(
                new Random(Long.parseLong(args[2])),
                new ElementLines(new PrintStream(bytes, true, StandardCharsets.UTF_8)));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            made.iceberg();
            made.icebergSink();
            made.paimon();
            made.mysql();
            made.others();
        }
        Files.write(Path.of(args[0]), bytes.toByteArray());
    }

    private void iceberg() throws Exception {
        List<IcebergSourceSplitState> states = new ArrayList<>();
        List<Map<String, Object>> all = new ArrayList<>();
        for (int each = random.nextInt(4); each > 0; each--) {
            List<Map<String, Object>> rows = new ArrayList<>();
            IcebergSourceSplit split = icebergSplit(rows);
            lines.write("iceberg_split", new IcebergSourceSplitSerializer(true), split, rows);
            IcebergSourceSplitStatus status = IcebergSourceSplitStatus.values()[random.nextInt(3)];
            for (Map<String, Object> row : rows) {
                Map<String, Object> whole = ElementLines.row(
                        "split", states.size(), "status", status.name().toLowerCase());
                whole.putAll(row);
                all.add(whole);
            }
            states.add(new IcebergSourceSplitState(split, status));
        }
        Long snapshot = random.nextBoolean() ? null : random.nextLong();
        Long time = random.nextBoolean() ? null : random.nextLong() >>> 24;
        if (all.isEmpty()) {
            all.add(ElementLines.row("path", null));
        }
        for (Map<String, Object> row : all) {
            row.putAll(ElementLines.row("snapshot_id", snapshot, "snapshot_time_ms", snapshot == null ? null : time));
        }
        lines.write("iceberg_enumerator", new IcebergEnumeratorStateSerializer(true),
                IcebergSourceValues.state(snapshot, time, states, new int[random.nextInt(3)]), all);
    }

    private void icebergSink() throws Exception {
        CommittableCollector<Object> collector = CommittableCollector.of(metrics());
        List<Map<String, Object>> rows = new ArrayList<>();
        for (long checkpoint = 1; checkpoint <= 1 + random.nextInt(2); checkpoint++) {
            collector.addMessage(new CommittableSummary<>(0, 1, checkpoint, 1, 0, 0));
            String job = text(), operator = text();
            byte[] manifests = new byte[random.nextInt(9)];
            collector.addMessage(new CommittableWithLineage<>(
                    IcebergSinkValues.committable(manifests, job, operator, checkpoint), checkpoint, 0));
            rows.add(ElementLines.row("checkpoint_id", checkpoint, "expected", 1, "job_id", job,
                    "operator_id", operator, "iceberg_checkpoint_id", checkpoint));
        }
        lines.write("iceberg_committables", new CommittableCollectorSerializer<>(
                IcebergSinkValues.committables(), 0, 1, metrics()), collector, rows);
    }

    private static SinkCommitterMetricGroup metrics() {
        return InternalSinkCommitterMetricGroup.wrap(
                UnregisteredMetricGroups.createUnregisteredOperatorMetricGroup());
    }

    private IcebergSourceSplit icebergSplit(List<Map<String, Object>> rows) {
        Schema schema = new Schema(Types.NestedField.required(1, "id", Types.LongType.get()),
                Types.NestedField.optional(2, "tag \u65e5", Types.StringType.get()));
        PartitionSpec spec = PartitionSpec.unpartitioned();
        List<FileScanTask> tasks = new ArrayList<>();
        int files = 1 + random.nextInt(3), current = random.nextInt(files), read = random.nextInt(1000);
        for (int file = 0; file < files; file++) {
            String path = "s3://lake/db/t/data/" + text() + "-" + file + ".parquet";
            long bytes = 4 + random.nextInt(1 << 30), records = random.nextInt(1 << 20);
            DataFile data = DataFiles.builder(spec)
                    .withPath(path).withFileSizeInBytes(bytes).withRecordCount(records).build();
            DeleteFile[] deletes = new DeleteFile[random.nextInt(3)];
            for (int each = 0; each < deletes.length; each++) {
                deletes[each] = FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
                        .withPath(path + ".deletes" + each + ".parquet").withFileSizeInBytes(9).withRecordCount(1)
                        .build();
            }
            FileScanTask task = new BaseFileScanTask(data, deletes, SchemaParser.toJson(schema),
                    PartitionSpecParser.toJson(spec),
                    ResidualEvaluator.unpartitioned(Expressions.equal("id", random.nextLong())));
            long start = 0, length = bytes;
            if (random.nextBoolean()) {
                FileScanTask part = task.split(bytes / 2 + 1).iterator().next();
                task = part;
                start = part.start();
                length = part.length();
            }
            tasks.add(task);
            rows.add(ElementLines.row("current_file", current, "records_read", read, "file", file, "path", path,
                    "start", start, "length", length, "file_records", records, "delete_files", deletes.length));
        }
        return IcebergSourceSplit.fromCombinedScanTask(new BaseCombinedScanTask(tasks), current, read);
    }

    private void paimon() throws Exception {
        String id = text();
        long skip = random.nextLong() >>> 1;
        DataSplit split = DataSplit.builder().withSnapshot(random.nextInt(99)).withPartition(BinaryRow.EMPTY_ROW)
                .withBucket(random.nextInt(9)).withBucketPath(text()).withDataFiles(List.of()).build();
        lines.write("paimon_split", new FileStoreSourceSplitSerializer(), new FileStoreSourceSplit(id, split, skip),
                List.of(ElementLines.row("split_id", id, "records_to_skip", skip)));
    }

    private void mysql() throws Exception {
        Map<TableId, TableChange> tables = new LinkedHashMap<>();
        List<Object> names = tables(tables, new TableId("shop", null, "orders"), "shop.orders");
        String id = text();
        if (random.nextBoolean()) {
            BinlogOffset mark = random.nextBoolean() ? null : binlog();
            Object[] start = random.nextBoolean() ? null : new Object[] {random.nextLong()};
            lines.write("cdc_split", new MySqlSplitSerializer(), new MySqlSnapshotSplit(
                    new TableId("shop", null, "orders"), id, keys(), start, null, mark, tables),
                    List.of(ElementLines.row("split_id", id, "kind", "snapshot", "table", "`shop`.`orders`",
                            "high_watermark", mark == null ? null : position(mark.getOffset()),
                            "chunk_start_hex", object(start), "chunk_end_hex", null, "tables", names)));
            return;
        }
        BinlogOffset start = binlog(), stop = random.nextBoolean() ? BinlogOffset.ofNonStopping() : null;
        List<com.ververica.cdc.connectors.mysql.source.split.FinishedSnapshotSplitInfo> finished = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            finished.add(new com.ververica.cdc.connectors.mysql.source.split.FinishedSnapshotSplitInfo(
                    new TableId("shop", null, "orders"), text(), null, new Object[] {"x"}, binlog()));
        }
        int number = random.nextInt(50);
        boolean suspended = random.nextBoolean();
        lines.write("cdc_split", new MySqlSplitSerializer(),
                new MySqlBinlogSplit(id, start, stop, finished, tables, number, suspended),
                List.of(ElementLines.row("split_id", id, "kind", "stream", "table", null,
                        "position", position(start.getOffset()),
                        "stop_position", stop == null ? null : position(stop.getOffset()),
                        "finished_splits", number, "tables", names, "suspended", suspended)));
    }

    private void others() throws Exception {
        Map<TableId, TableChange> tables = new LinkedHashMap<>();
        TableId table = new TableId("db", "public", "a.b");
        List<Object> names = tables(tables, table, "\"db\".\"public\".\"a.b\"");
        String id = text();
        if (random.nextBoolean()) {
            Place mark = random.nextBoolean() ? null : place();
            Object[] end = random.nextBoolean() ? null : new Object[] {text()};
            lines.write("cdc_split", new Splits(), new SnapshotSplit(table, id, keys(), null, end, mark, tables),
                    List.of(ElementLines.row("split_id", id, "kind", "snapshot", "table", table.toDoubleQuotedString(),
                            "high_watermark", mark == null ? null : position(mark.getOffset()),
                            "chunk_start_hex", null, "chunk_end_hex", object(end), "tables", names)));
            return;
        }
        Place start = place(), stop = random.nextBoolean() ? place() : null;
        List<FinishedSnapshotSplitInfo> finished = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            finished.add(new FinishedSnapshotSplitInfo(
                    table, text(), null, new Object[] {each}, place(), new Places()));
        }
        int number = random.nextInt(50);
        boolean suspended = random.nextBoolean(), completed = random.nextBoolean();
        lines.write("cdc_split", new Splits(),
                new StreamSplit(id, start, stop, finished, tables, number, suspended, completed),
                List.of(ElementLines.row("split_id", id, "kind", "stream", "position", position(start.getOffset()),
                        "stop_position", stop == null ? null : position(stop.getOffset()),
                        "finished_splits", number, "tables", names, "suspended", suspended,
                        "snapshot_completed", completed)));
    }

    private List<Object> tables(Map<TableId, TableChange> tables, TableId id, String name) {
        if (random.nextBoolean()) {
            return List.of();
        }
        Table table = Table.editor().tableId(id)
                .addColumn(Column.editor().name("id\u65e5").type("BIGINT").jdbcType(-5).position(1).create())
                .setPrimaryKeyNames("id\u65e5").create();
        tables.put(id, new TableChange(TableChangeType.CREATE, table));
        return List.of(name);
    }

    /** What Java's serialization makes of a value, in hexadecimal digits; null of null. */
    private static String object(Object[] value) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(value);
        }
        return value == null ? null : HexFormat.of().formatHex(bytes.toByteArray());
    }

    private RowType keys() {
        return random.nextBoolean()
                ? RowType.of(new LogicalType[] {new BigIntType(false)}, new String[] {"id"})
                : RowType.of(new LogicalType[] {new VarCharType(255)}, new String[] {"name"});
    }

    private BinlogOffset binlog() {
        return random.nextBoolean()
                ? BinlogOffset.ofBinlogFilePosition("mysql-bin.00000" + random.nextInt(9), random.nextInt(1 << 20))
                : BinlogOffset.ofTimestampSec(random.nextInt(1 << 30));
    }

    private Place place() {
        Map<String, String> found = new HashMap<>();
        found.put("lsn", String.valueOf(random.nextLong() >>> 1));
        found.put("txId", random.nextBoolean() ? null : text());
        return new Place(found);
    }

    /** Pairs of names and texts, by their names. */
    private static List<Object> position(Map<String, String> offset) {
        List<Object> found = new ArrayList<>();
        offset.keySet().stream().sorted().forEach(each -> {
            List<Object> pair = new ArrayList<>();
            pair.add(each);
            pair.add(offset.get(each));
            found.add(pair);
        });
        return found;
    }

    private String text() {
        String[] texts = {"", "a", "orders-0", "\u65e5\u672c \ud83d\ude00", "nul\0\"\\", "x".repeat(300)};
        return texts[random.nextInt(texts.length)];
    }

    /** A position in a log, as each database has one of its own. */
    private static final class Place extends Offset {
        Place(Map<String, String> offset) {
            this.offset = offset;
        }

        @Override
        public int compareTo(Offset other) {
            return 0;
        }
    }

    private static final class Places extends OffsetFactory {
        @Override
        public Offset newOffset(Map<String, String> offset) {
            return new Place(offset);
        }

        @Override
        public Offset newOffset(String file, Long at) {
            return null;
        }

        @Override
        public Offset newOffset(Long at) {
            return null;
        }

        @Override
        public Offset createTimestampOffset(long at) {
            return null;
        }

        @Override
        public Offset createInitialOffset() {
            return null;
        }

        @Override
        public Offset createNoStoppingOffset() {
            return null;
        }
    }

    private static final class Splits extends SourceSplitSerializer {
        @Override
        public OffsetFactory getOffsetFactory() {
            return new Places();
        }
    }
}
