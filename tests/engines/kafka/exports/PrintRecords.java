package org.apache.kafka.tools.consumer;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

/** Prints twelve records into a file by the formatter of kafka-console-consumer; arguments: FILE property=value... */
public final class PrintRecords {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        DefaultMessageFormatter formatter = new DefaultMessageFormatter();
        formatter.configure(properties);
        try (PrintStream out = new PrintStream(arguments[0])) {
            for (int i = 0; i < 12; i++) {
                RecordHeaders headers = new RecordHeaders();
                if (i % 3 == 1) {
                    headers.add("h", "x".getBytes()).add("g", null);
                }
                byte[] key = ("k" + i % 4).getBytes();
                byte[] value = ("{\"n\": " + i + "}").getBytes(StandardCharsets.UTF_8);
                value = i == 7 ? null : i == 5 ? new byte[] {1, (byte) 0xff, 'v'} : value;
                formatter.writeTo(
                        new ConsumerRecord<>(
                                "shop-counts-changelog", i % 2, i / 2, 1714550400000L + i,
                                TimestampType.CREATE_TIME, 0, 0, key, value, headers, Optional.empty()),
                        out);
            }
        }
    }
}
