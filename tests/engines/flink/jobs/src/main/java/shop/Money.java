package shop;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** An amount whose serializer a user wrote; its snapshot says nothing but its name. */
public final class Money {
    public final long cents;
    public final String currency;

    public Money(long cents, String currency) {
        this.cents = cents;
        this.currency = currency;
    }

    /** Writes eight bytes and a text, which have no length before them. */
    public static final class MoneySerializer extends TypeSerializerSingleton<Money> {
        public static final MoneySerializer INSTANCE = new MoneySerializer();

        @Override public boolean isImmutableType() {
            return true;
        }

        @Override public Money createInstance() {
            return new Money(0, "");
        }

        @Override public Money copy(Money from) {
            return from;
        }

        @Override public Money copy(Money from, Money reuse) {
            return from;
        }

        @Override public int getLength() {
            return -1;
        }

        @Override public void serialize(Money value, DataOutputView out) throws IOException {
            out.writeLong(value.cents);
            out.writeUTF(value.currency);
        }

        @Override public Money deserialize(DataInputView in) throws IOException {
            return new Money(in.readLong(), in.readUTF());
        }

        @Override public Money deserialize(Money reuse, DataInputView in) throws IOException {
            return deserialize(in);
        }

        @Override public void copy(DataInputView in, DataOutputView out) throws IOException {
            serialize(deserialize(in), out);
        }

        @Override public TypeSerializerSnapshot<Money> snapshotConfiguration() {
            return new MoneySnapshot();
        }

        public static final class MoneySnapshot extends SimpleTypeSerializerSnapshot<Money> {
            public MoneySnapshot() {
                super(() -> INSTANCE);
            }
        }
    }
}
