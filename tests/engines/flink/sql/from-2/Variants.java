import java.math.*; import java.time.*; import java.util.*;
import org.apache.flink.types.variant.*;
import org.apache.flink.core.memory.*;
import org.apache.flink.api.common.typeutils.base.VariantSerializer;
/** Prints random variants: the bytes of {@code VariantSerializer} and the JSON that Flink makes of them, in base64. */
public class Variants {
    static Random random = new Random(7);
    static VariantBuilder b = Variant.newBuilder();
    static String text() { int n = random.nextInt(4) == 0 ? 70 + random.nextInt(40) : random.nextInt(12); StringBuilder s = new StringBuilder(); for (int i = 0; i < n; i++) s.appendCodePoint(new int[] {'a' + random.nextInt(26), '"', '\\', '\n', 1, 0xe9, 0x4e2d, 0x1f600, ' ', 'z'}[random.nextInt(10)]); return s.toString(); }
    static Variant value(int depth) {
        switch (random.nextInt(depth > 3 ? 16 : 20)) {
            case 0: return b.ofNull();
            case 1: return b.of(random.nextBoolean());
            case 2: return b.of((byte) random.nextInt());
            case 3: return b.of((short) random.nextInt());
            case 4: return b.of(random.nextInt());
            case 5: return b.of(random.nextLong());
            case 6: return b.of(random.nextGaussian() * Math.pow(10, random.nextInt(60) - 30));
            case 7: return b.of((float) random.nextGaussian());
            case 8: case 9: { int digits = 1 + random.nextInt(38); BigInteger n = new BigInteger(120, random).mod(BigInteger.TEN.pow(digits)); if (random.nextBoolean()) n = n.negate(); return b.of(new BigDecimal(n, random.nextInt(digits + 1))); }
            case 10: return b.of(LocalDate.ofEpochDay(random.nextInt(60000) - 30000));
            case 11: return b.of(LocalDateTime.ofEpochSecond(random.nextInt(), random.nextInt(1000000) * 1000, ZoneOffset.UTC));
            case 12: return b.of(Instant.ofEpochSecond(random.nextInt(), random.nextInt(1000000) * 1000));
            case 13: { byte[] x = new byte[random.nextInt(9)]; random.nextBytes(x); return b.of(x); }
            case 14: case 15: return b.of(text());
            case 16: case 17: { VariantBuilder.VariantArrayBuilder a = b.array(); int n = random.nextInt(30) == 0 ? 300 : random.nextInt(5); for (int i = 0; i < n; i++) a.add(value(depth + 1)); return a.build(); }
            default: { VariantBuilder.VariantObjectBuilder o = b.object(); int n = random.nextInt(40) == 0 ? 300 : random.nextInt(5); Set<String> names = new TreeSet<>(); for (int i = 0; i < n; i++) names.add(n > 200 ? "k" + i : text()); for (String each : names) o.add(each, value(depth + 1)); return o.build(); }
        }
    }
    public static void main(String[] a) throws Exception {
        for (int i = 0; i < Integer.parseInt(a[0]); i++) {
            Variant v = value(0);
            DataOutputSerializer out = new DataOutputSerializer(64);
            VariantSerializer.INSTANCE.serialize(v, out);
            StringBuilder hex = new StringBuilder(); for (byte x : out.getCopyOfBuffer()) hex.append(String.format("%02x", x));
            System.out.println(hex + "\t" + Base64.getEncoder().encodeToString(v.toJson().getBytes("UTF-8")));
        }
    }
}
