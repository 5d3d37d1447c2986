package org.apache.flink.connector.kafka.sink;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.List;

import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Values of the Kafka sink, of which some are visible in its package alone. */
public final class KafkaSinkValues {
    private KafkaSinkValues() {}

    public static SimpleVersionedSerializer<?> committables() {
        return new KafkaCommittableSerializer();
    }

    public static Object committable(long producerId, short epoch, String id) throws Exception {
        for (Constructor<?> each : KafkaCommittable.class.getDeclaredConstructors()) {
            if (each.getParameterCount() == 4) {
                each.setAccessible(true);
                return each.newInstance(producerId, epoch, id, null);
            }
        }
        throw new IllegalStateException("KafkaCommittable is made otherwise");
    }

    public static SimpleVersionedSerializer<?> writers() {
        return new KafkaWriterStateSerializer();
    }

    /** A writer's state: of the prefix alone, or from connector 4.0 on with the owned subtasks and the transactions. */
    public static Object writer(String prefix, int subtask, int subtasks, int ownership, List<Object[]> used)
            throws Exception {
        Constructor<?> made = KafkaWriterState.class.getDeclaredConstructors()[0];
        made.setAccessible(true);
        if (made.getParameterCount() == 1) {
            return made.newInstance(prefix);
        }
        String inner = "org.apache.flink.connector.kafka.sink.internal.";
        Constructor<?> transaction = Class.forName(inner + "CheckpointTransaction").getConstructors()[0];
        List<Object> transactions = new ArrayList<>();
        for (Object[] each : used) {
            transactions.add(transaction.newInstance(each));
        }
        Object how = Class.forName(inner + "TransactionOwnership").getEnumConstants()[ownership];
        return made.newInstance(prefix, subtask, subtasks, how, transactions);
    }
}
