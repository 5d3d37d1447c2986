package shop;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.KryoSerializable;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import com.esotericsoftware.kryo.serializers.FieldSerializer;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/** Classes of every form that class files have: fields, generics, enums, records, and those with a form of their own. */
public class Shapes<T extends Number, U> implements Serializable {
    private static final long serialVersionUID = 1L;
    static int count;
    transient int cached;
    final int number = 3;
    volatile long total;
    boolean flag;
    byte octet;
    char sign;
    short small;
    float ratio;
    double share;
    int[] numbers;
    String[][] words;
    T first;
    U second;
    T[] several;
    List<String> names;
    List<? extends Number> upper;
    List<? super Integer> lower;
    List<?> any;
    Map<String, List<Map<T, U[]>>> nested;
    @SuppressWarnings("rawtypes") List raw;
    Outer<String>.Inner<Integer> inner;
    Set<Map.Entry<String, int[]>> entries;
    Color color;
    String größe, 名前, $dollar, a_b;
    Function<? super T, ? extends Collection<? extends U>> function;

    public static class Below extends Shapes<Integer, List<String>> {
        String own;
    }

    public static class Outer<A> {
        A a;

        public class Inner<B extends Comparable<B> & Serializable> {
            A outer;
            B own;
        }
    }

    public record Point<X>(int y, X x, List<X> all) {
        static final Point<String> ORIGIN = new Point<>(0, "", List.of());
    }

    public interface Priced {
        int LIMIT = 7;

        long cents();
    }

    public abstract static class Item implements Priced {
        protected long cents;
    }

    public static final class Book extends Item {
        String title;
        private Object extra = new Object() {
            int hidden = count;
        };

        @Override
        public long cents() {
            return cents;
        }
    }

    public enum Color {
        RED,
        GREEN(new Named("x", 5)) {
            int more = 1;
        },
        BLUE;

        static final Color DEFAULT = GREEN;
        private final Named named;
        private final transient int skipped = 1;

        Color() {
            this(new Named("none", 0));
        }

        Color(Named named) {
            this.named = named;
        }

        static class Named {
            final String name;
            final int number;

            Named(String name, int number) {
                this.name = name;
                this.number = number;
            }
        }

        @Override
        public String toString() {
            return "not the name";
        }
    }

    public enum Switched implements Comparator<String> {
        A(1), B(2), ÄÖ(count > 0 ? 3 : 4), D(Color.values().length);

        static final Map<String, Switched> BY_NAME = new HashMap<>();

        static {
            for (Switched each : values()) {
                switch (each) {
                    case A: BY_NAME.put("first", each); break;
                    case B: BY_NAME.put("second", each); break;
                    default: BY_NAME.put(each.name(), each);
                }
                switch (each.name()) {
                    case "A": case "B": break;
                    default: count++;
                }
            }
        }

        final int code;

        Switched(int code) {
            this.code = code;
        }

        @Override
        public int compare(String left, String right) {
            return left.compareTo(right);
        }
    }

    public enum Nothing {}

    public enum Own implements KryoSerializable {
        ONE;

        @Override
        public void write(Kryo kryo, Output output) {}

        @Override
        public void read(Kryo kryo, Input input) {}
    }

    public static class Written implements KryoSerializable {
        int number;

        @Override
        public void write(Kryo kryo, Output output) {}

        @Override
        public void read(Kryo kryo, Input input) {}
    }

    public static class BelowWritten extends Written {}

    public static class Bound {
        @FieldSerializer.Optional("key")
        int number;
    }

    public static class Names extends ArrayList<String> {
        String own;
    }

    @Deprecated
    @FunctionalInterface
    public interface Marked {
        void run();
    }
}
