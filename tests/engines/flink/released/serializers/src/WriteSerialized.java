import java.io.ByteArrayOutputStream;
import java.lang.reflect.Constructor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.PriorityQueue;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshotSerializationUtil;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.cep.nfa.ComputationState;
import org.apache.flink.cep.nfa.DeweyNumber;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.NFAStateSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.EventId;
import org.apache.flink.cep.nfa.sharedbuffer.Lockable;
import org.apache.flink.cep.nfa.sharedbuffer.NodeId;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNodeSerializer;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/** Writes values that the files of Flink's releases have none of, in the form that {@link ReadSerialized} reads. */
public final class WriteSerialized {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        write(folder, "written-nfa-state", new NFAStateSerializer(), matches());
        write(folder, "written-node-id", new NodeId.NodeIdSerializer(), nodes());
        write(folder, "written-shared-buffer-node", new SharedBufferNodeSerializer(), entries());
        write(folder, "written-transactions", transactionSerializer(), transactions());
    }

    /** The sink's class, which has another package since Flink 2. */
    private static Class<?> ofTransactions(String name) throws ClassNotFoundException {
        String start = "org.apache.flink.streaming.api.functions.sink.";
        try {
            return Class.forName(start + "TwoPhaseCommitSinkFunction$" + name);
        } catch (ClassNotFoundException since2) {
            return Class.forName(start + "legacy.TwoPhaseCommitSinkFunction$" + name);
        }
    }

    @SuppressWarnings("unchecked")
    private static TypeSerializer<Object> transactionSerializer() throws Exception {
        return (TypeSerializer<Object>) ofTransactions("StateSerializer").getConstructor(TypeSerializer.class, TypeSerializer.class)
                .newInstance(StringSerializer.INSTANCE, LongSerializer.INSTANCE);
    }

    private static List<Object> transactions() throws Exception {
        Class<?> holder = ofTransactions("TransactionHolder");
        Object held = holder.getConstructor(Object.class, long.class).newInstance("tx-1", 1_700_000_000_000L);
        Constructor<?> state = ofTransactions("State").getConstructor(holder, List.class, Optional.class);
        return Arrays.asList(
                state.newInstance(null, Arrays.asList(), Optional.empty()),
                state.newInstance(held, Arrays.asList(held, held), Optional.of(-5L)),
                state.newInstance(null, Arrays.asList(held), Optional.empty()));
    }

    private static List<NodeId> nodes() {
        return Arrays.asList(new NodeId(new EventId(7, -1L), "p\u00e4ge:\u4e2d"), null, new NodeId(new EventId(-1, Long.MAX_VALUE), ""));
    }

    private static List<NFAState> matches() {
        NodeId node = nodes().get(0);
        DeweyNumber version = new DeweyNumber(1).addStage().increase().addStage();
        ComputationState begun = ComputationState.createState("start", null, new DeweyNumber(1), -1L, -1L, null);
        ComputationState going = ComputationState.createState("middle:0", node, version, 1_700_000_000_000L, 5L, new EventId(3, 9L));
        NFAState empty = new NFAState(queue(), queue());
        return Arrays.asList(new NFAState(queue(begun), queue()), empty, new NFAState(queue(going, begun), queue(going)));
    }

    private static PriorityQueue<ComputationState> queue(ComputationState... states) {
        PriorityQueue<ComputationState> found = new PriorityQueue<>(NFAState.COMPUTATION_STATE_COMPARATOR);
        found.addAll(Arrays.asList(states));
        return found;
    }

    private static List<SharedBufferNode> entries() {
        SharedBufferNode node = new SharedBufferNode();
        List<Lockable<SharedBufferEdge>> edges = node.getEdges();
        edges.add(new Lockable<>(new SharedBufferEdge(nodes().get(0), new DeweyNumber(4)), 2));
        edges.add(new Lockable<>(new SharedBufferEdge(null, new DeweyNumber(1).addStage()), 0));
        return Arrays.asList(node, new SharedBufferNode());
    }

    private static <T> void write(Path folder, String name, TypeSerializer<T> serializer, List<T> values) throws Exception {
        Path place = Files.createDirectories(folder.resolve(name));
        ByteArrayOutputStream snapshot = new ByteArrayOutputStream();
        DataOutputView out = new DataOutputViewStreamWrapper(snapshot);
        TypeSerializerSnapshotSerializationUtil.writeSerializerSnapshot(out, serializer.snapshotConfiguration());
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        for (T each : values) {
            serializer.serialize(each, new DataOutputViewStreamWrapper(data));
        }
        Files.write(place.resolve("serializer-snapshot"), snapshot.toByteArray());
        Files.write(place.resolve("test-data"), data.toByteArray());
    }
}
