package org.apache.iceberg.flink.source.enumerator;

import java.util.Collection;
import org.apache.iceberg.flink.source.split.IcebergSourceSplitState;

/** Makes values of the Iceberg source that are not public. */
public final class IcebergSourceValues {
    private IcebergSourceValues() {}

    public static IcebergEnumeratorState state(
            Long snapshot, Long time, Collection<IcebergSourceSplitState> splits, int[] counts) {
        IcebergEnumeratorPosition position =
                snapshot == null ? IcebergEnumeratorPosition.empty() : IcebergEnumeratorPosition.of(snapshot, time);
        return new IcebergEnumeratorState(position, splits, counts);
    }
}
