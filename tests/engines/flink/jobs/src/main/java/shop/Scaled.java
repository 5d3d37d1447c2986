package shop;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** A number whose serializer a user wrote; the serializer has a setting, which its snapshot holds. */
public final class Scaled {
    public final double number;

    public Scaled(double number) {
        this.number = number;
    }

    /** Writes the number times a factor, as a whole number of three bytes. */
    public static final class ScaledSerializer extends TypeSerializer<Scaled> {
        private final int factor;

        public ScaledSerializer(int factor) {
            this.factor = factor;
        }

        @Override public boolean isImmutableType() {
            return true;
        }

        @Override public TypeSerializer<Scaled> duplicate() {
            return this;
        }

        @Override public Scaled createInstance() {
            return new Scaled(0);
        }

        @Override public Scaled copy(Scaled from) {
            return from;
        }

        @Override public Scaled copy(Scaled from, Scaled reuse) {
            return from;
        }

        @Override public int getLength() {
            return 3;
        }

        @Override public void serialize(Scaled value, DataOutputView out) throws IOException {
            int whole = (int) Math.round(value.number * factor);
            out.writeByte(whole >> 16);
            out.writeShort(whole);
        }

        @Override public Scaled deserialize(DataInputView in) throws IOException {
            int high = in.readByte();
            return new Scaled((double) (high << 16 | in.readUnsignedShort()) / factor);
        }

        @Override public Scaled deserialize(Scaled reuse, DataInputView in) throws IOException {
            return deserialize(in);
        }

        @Override public void copy(DataInputView in, DataOutputView out) throws IOException {
            out.write(in, 3);
        }

        @Override public boolean equals(Object other) {
            return other instanceof ScaledSerializer && ((ScaledSerializer) other).factor == factor;
        }

        @Override public int hashCode() {
            return factor;
        }

        @Override public TypeSerializerSnapshot<Scaled> snapshotConfiguration() {
            return new ScaledSnapshot(factor);
        }
    }

    /** Holds the factor and a text after it. */
    public static final class ScaledSnapshot implements TypeSerializerSnapshot<Scaled> {
        private int factor;

        public ScaledSnapshot() {}

        public ScaledSnapshot(int factor) {
            this.factor = factor;
        }

        @Override public int getCurrentVersion() {
            return 5;
        }

        @Override public void writeSnapshot(DataOutputView out) throws IOException {
            out.writeInt(factor);
            out.writeUTF("scaled by " + factor);
        }

        @Override public void readSnapshot(int version, DataInputView in, ClassLoader loader) throws IOException {
            factor = in.readInt();
            in.readUTF();
        }

        @Override public TypeSerializer<Scaled> restoreSerializer() {
            return new ScaledSerializer(factor);
        }

        @Override public TypeSerializerSchemaCompatibility<Scaled> resolveSchemaCompatibility(TypeSerializerSnapshot<Scaled> old) {
            return TypeSerializerSchemaCompatibility.compatibleAsIs();
        }
    }
}
