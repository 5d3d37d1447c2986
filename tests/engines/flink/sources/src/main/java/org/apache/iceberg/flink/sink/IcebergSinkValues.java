package org.apache.iceberg.flink.sink;

import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Makes values of the Iceberg sink that are not public. */
public final class IcebergSinkValues {
    private IcebergSinkValues() {}

    public static Object committable(byte[] manifests, String job, String operator, long checkpoint) {
        return new IcebergCommittable(manifests, job, operator, checkpoint);
    }

    @SuppressWarnings("unchecked")
    public static SimpleVersionedSerializer<Object> committables() {
        return (SimpleVersionedSerializer<Object>) (SimpleVersionedSerializer<?>) new IcebergCommittableSerializer();
    }
}
