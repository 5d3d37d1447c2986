import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Emits the numbers 0, 1, 2, ... up to a gate that the driver moves, and a watermark each time that it gets there.
 *
 * The numbers are dealt to the subtasks by turns; split i of n has i, i + n, .... A bounded source ends at its limit.
 */
final class GatedSource implements Source<Long, GatedSource.Split, byte[]> {
    /** The first number that may not be emitted yet. */
    static final AtomicLong GATE = new AtomicLong();
    /** The number that each split of the sources that have no end emits next. */
    static final AtomicLongArray NEXT = new AtomicLongArray(64);
    static volatile int splits = 1;
    /** What the next number of a source of one split was at each checkpoint, and the checkpoints that are complete. */
    static final ConcurrentSkipListMap<Long, Long> POSITIONS = new ConcurrentSkipListMap<>();
    static final ConcurrentSkipListSet<Long> COMPLETE = new ConcurrentSkipListSet<>();

    private final long step;
    private final long[] ends;

    /** A source of one split without end; the timestamp of a number is a multiple of the step. */
    GatedSource(long step) {
        this(step, Long.MAX_VALUE);
    }

    /** A source of a split for each end (exclusive). */
    GatedSource(long step, long... ends) {
        this.step = step;
        this.ends = ends;
    }

    static final class Split implements SourceSplit {
        final int index;
        final int count;
        final long end;
        long next;

        Split(int index, int count, long end, long next) {
            this.index = index;
            this.count = count;
            this.end = end;
            this.next = next;
        }

        @Override public String splitId() {
            return "split-" + index;
        }
    }

    @Override public Boundedness getBoundedness() {
        for (long end : ends) if (end == Long.MAX_VALUE) return Boundedness.CONTINUOUS_UNBOUNDED;
        return Boundedness.BOUNDED;
    }

    @Override public SourceReader<Long, Split> createReader(SourceReaderContext context) {
        return new Reader(step);
    }

    @Override public SplitEnumerator<Split, byte[]> createEnumerator(SplitEnumeratorContext<Split> context) {
        return new Enumerator(context, ends, false);
    }

    @Override public SplitEnumerator<Split, byte[]> restoreEnumerator(SplitEnumeratorContext<Split> context, byte[] state) {
        return new Enumerator(context, ends, true);
    }

    @Override public SimpleVersionedSerializer<Split> getSplitSerializer() {
        return new SplitSerializer();
    }

    @Override public SimpleVersionedSerializer<byte[]> getEnumeratorCheckpointSerializer() {
        return new BytesSerializer();
    }

    private static final class Enumerator implements SplitEnumerator<Split, byte[]> {
        private final SplitEnumeratorContext<Split> context;
        private final long[] ends;
        private final boolean restored;
        private final Set<Integer> known = new HashSet<>();

        Enumerator(SplitEnumeratorContext<Split> context, long[] ends, boolean restored) {
            this.context = context;
            this.ends = ends;
            this.restored = restored;
        }

        @Override public void start() {}

        @Override public void handleSplitRequest(int subtask, String host) {}

        @Override public void addSplitsBack(List<Split> splits, int subtask) {
            if (!splits.isEmpty()) throw new IllegalStateException("the job failed before a checkpoint");
        }

        @Override public void addReader(int subtask) {
            if (known.add(subtask) && !restored) // a subtask that was started again has its splits in its state
                for (int i = subtask; i < ends.length; i += context.currentParallelism())
                    context.assignSplit(new Split(i, ends.length, ends[i], i), subtask);
            context.signalNoMoreSplits(subtask);
        }

        @Override public byte[] snapshotState(long checkpoint) {
            return new byte[] {'d', 'e', 'a', 'l', 't'};
        }

        @Override public void close() {}
    }

    private static final class Reader implements SourceReader<Long, Split> {
        private final long step;
        private final List<Split> splits = new ArrayList<>();
        private boolean noMore;
        private long marked = Long.MIN_VALUE;

        Reader(long step) {
            this.step = step;
        }

        @Override public void start() {}

        @Override public InputStatus pollNext(ReaderOutput<Long> output) throws Exception {
            long gate = GATE.get();
            boolean over = noMore;
            for (Split split : splits) {
                long end = Math.min(gate, split.end);
                while (split.next < end) {
                    output.collect(split.next, split.next * step);
                    split.next += split.count;
                }
                over &= split.next >= split.end;
            }
            if (gate > marked && gate > 0 && !splits.isEmpty()) {
                marked = gate;
                output.emitWatermark(new Watermark((gate - 1) * step));
            }
            for (Split split : splits) if (split.end == Long.MAX_VALUE) NEXT.set(split.index, split.next);
            return over ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
        }

        @Override public List<Split> snapshotState(long checkpoint) {
            for (Split split : splits) if (split.count == 1) POSITIONS.put(checkpoint, split.next);
            return new ArrayList<>(splits);
        }

        @Override public void notifyCheckpointComplete(long checkpoint) {
            COMPLETE.add(checkpoint);
        }

        @Override public CompletableFuture<Void> isAvailable() {
            return CompletableFuture.runAsync(() -> {
                try {
                    Thread.sleep(2);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            });
        }

        @Override public void addSplits(List<Split> added) {
            splits.addAll(added);
        }

        @Override public void notifyNoMoreSplits() {
            noMore = true;
        }

        @Override public void close() {}
    }

    static final class SplitSerializer implements SimpleVersionedSerializer<Split> {
        @Override public int getVersion() {
            return 7;
        }

        @Override public byte[] serialize(Split split) {
            return ByteBuffer.allocate(24).putInt(split.index).putInt(split.count).putLong(split.end).putLong(split.next).array();
        }

        @Override public Split deserialize(int version, byte[] bytes) {
            ByteBuffer in = ByteBuffer.wrap(bytes);
            return new Split(in.getInt(), in.getInt(), in.getLong(), in.getLong());
        }
    }

    static final class BytesSerializer implements SimpleVersionedSerializer<byte[]> {
        @Override public int getVersion() {
            return 1;
        }

        @Override public byte[] serialize(byte[] bytes) {
            return bytes;
        }

        @Override public byte[] deserialize(int version, byte[] bytes) {
            return bytes;
        }
    }
}
