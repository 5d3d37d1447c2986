import io.aiven.kafka.connect.common.config.CompressionType;
import io.aiven.kafka.connect.common.config.FormatType;
import io.aiven.kafka.connect.common.config.OutputField;
import io.aiven.kafka.connect.common.config.OutputFieldEncodingType;
import io.aiven.kafka.connect.common.config.OutputFieldType;
import io.aiven.kafka.connect.common.output.OutputWriter;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;

/** Writes records with the writers of Aiven's sinks: {@code AivenFiles FOLDER}. The tests have the same records. */
public final class AivenFiles {
    private static final List<OutputFieldType> ALL = List.of(
            OutputFieldType.KEY, OutputFieldType.VALUE, OutputFieldType.OFFSET, OutputFieldType.TIMESTAMP,
            OutputFieldType.HEADERS);

    private AivenFiles() {}

    public static void main(String[] arguments) throws Exception {
        Path folder = Files.createDirectories(Path.of(arguments[0]));
        write(folder, "jsonl.gz", FormatType.JSONL, CompressionType.GZIP, ALL);
        write(folder, "json.zst", FormatType.JSON, CompressionType.ZSTD, ALL);
        write(folder, "values.jsonl", FormatType.JSONL, CompressionType.NONE, List.of(OutputFieldType.VALUE));
        write(folder, "csv", FormatType.CSV, CompressionType.NONE, ALL);
    }

    private static void write(
            Path folder, String end, FormatType format, CompressionType packed, List<OutputFieldType> kinds)
            throws Exception {
        List<OutputField> fields = new ArrayList<>();
        kinds.forEach(each -> fields.add(new OutputField(each, OutputFieldEncodingType.NONE)));
        List<SinkRecord> records = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            records.add(record(number));
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (OutputWriter writer = OutputWriter.builder().withCompressionType(packed)
                .withExternalProperties(Map.of()).withOutputFields(fields).withEnvelopeEnabled(kinds.size() > 1)
                .build(out, format)) {
            writer.writeRecords(records);
        }
        Files.write(folder.resolve("shop-prices-changelog." + end), out.toByteArray());
    }

    /** Every seventh record deletes its key. */
    private static SinkRecord record(int number) {
        ConnectHeaders headers = new ConnectHeaders();
        if (number % 3 == 0) {
            headers.addBytes("h", new byte[] {1, (byte) number});
        }
        byte[] value = number % 7 == 6 ? null : ("v\u00e9,\"" + number).getBytes(StandardCharsets.UTF_8);
        return new SinkRecord("shop-prices", 0, Schema.OPTIONAL_STRING_SCHEMA, "k\u00e9" + number % 5,
                Schema.OPTIONAL_BYTES_SCHEMA, value, 100 + number, 1714550400000L + number,
                TimestampType.CREATE_TIME, headers);
    }
}
