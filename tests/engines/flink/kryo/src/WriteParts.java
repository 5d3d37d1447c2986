import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.OffsetTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.*;
import java.util.concurrent.LinkedTransferQueue;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.regex.Pattern;

/**
 * Writes values that share their parts, and addresses, files and arrays, as WriteKryo does and with what it has.
 *
 * <p>Arguments: how many random lists. Their truths are those of WriteKryo; that of an address is "host:port".
 */
public class WriteParts {
    /** Times of few days and hours, so that Java gives many of them the same objects of dates and times. */
    static LocalDateTime dateTime(Random random, LocalDate[] days) {
        LocalDate day = days[random.nextInt(days.length)];
        switch (random.nextInt(4)) {
            case 0: return day.atStartOfDay();
            case 1: return day.atTime(random.nextInt(3), 0);
            case 2: return day.atTime(random.nextInt(24), random.nextInt(60), random.nextInt(60), random.nextInt(1000000000));
            default: return day.atStartOfDay().plusMinutes(random.nextInt(100));
        }
    }

    static Object next(Random random, LocalDate[] days) {
        LocalDateTime time = dateTime(random, days);
        switch (random.nextInt(12)) {
            case 0: return time.toLocalDate();
            case 1: return time.toLocalTime();
            case 2: return OffsetDateTime.of(time, ZoneOffset.ofHours(random.nextInt(2)));
            case 3: return ZonedDateTime.of(time, ZoneId.of(random.nextBoolean() ? "UTC" : "Asia/Kathmandu"));
            case 4: return OffsetTime.of(time.toLocalTime(), ZoneOffset.ofHours(random.nextInt(2)));
            case 5: return random.nextBoolean() ? "text" : null;
            case 6: return new LinkedHashMap<>(Map.of(time, time.plusHours(1)));
            case 7: return new ArrayList<>(Arrays.asList(time.toLocalDate(), time, time.toLocalTime(), time));
            default: return time;
        }
    }

    static String address(InetSocketAddress address) {
        String host = address.getHostName();
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + address.getPort();
    }

    /** Objects whose truths are texts of their own. */
    static List<Object> others() {
        return Arrays.asList(
                InetSocketAddress.createUnresolved("example.org", 443), InetSocketAddress.createUnresolved("a", 0),
                new InetSocketAddress("localhost", 65535), InetSocketAddress.createUnresolved("::1", 80),
                new File("/data/a b"), new File("caf\u00e9"), new File(""), StandardCharsets.UTF_8, Charset.forName("windows-1252"),
                Pattern.compile("a+b?"), new AtomicIntegerArray(new int[] {1, -2, 3}), new AtomicLongArray(new long[] {1L << 40}),
                new LinkedTransferQueue<>(Arrays.asList("x", 1)), new Object[][] {{"a", null}, null, {1}},
                new ArrayList[] {new ArrayList<>(Arrays.asList("a")), null}, new OptionalInt[] {OptionalInt.of(5), null},
                new java.sql.Timestamp[] {new java.sql.Timestamp(5), null}, new Integer[][] {{1, null}, {}});
    }

    static String truth(Object value) {
        if (value instanceof AtomicIntegerArray || value instanceof AtomicLongArray) return value.toString();
        if (value instanceof InetSocketAddress) return WriteKryo.text(address((InetSocketAddress) value));
        if (value instanceof List) {
            StringJoiner parts = new StringJoiner(", ", "[", "]");
            for (Object each : (List<?>) value) parts.add(truth(each));
            return parts.toString();
        }
        return WriteKryo.truth(value);
    }

    public static void main(String[] arguments) throws Exception {
        WriteKryo.snapshot(Object.class);
        Random random = new Random(20260303);
        for (int i = Integer.parseInt(arguments[0]); i > 0; i--) {
            LocalDate[] days = {LocalDate.of(2024, 2, 29), LocalDate.ofEpochDay(random.nextInt(30000)), LocalDate.of(1969, 12, 31)};
            List<Object> all = new ArrayList<>();
            for (int k = 2 + random.nextInt(7); k > 0; k--) all.add(next(random, days));
            WriteKryo.write(Object.class, all);
        }
        for (int i = Integer.parseInt(arguments[0]); i > 0; i--) {
            LocalDate[] days = {LocalDate.ofEpochDay(random.nextInt(30000)), LocalDate.of(2024, 2, 29)};
            List<Object> all = new ArrayList<>();
            for (int k = 2 + random.nextInt(7); k > 0; k--) all.add(dateTime(random, days));
            WriteKryo.write(Object.class, all);
        }
        for (Object each : others()) {
            WriteKryo.write(Object.class, each, truth(each));
            List<Object> twice = new ArrayList<>(Arrays.asList(each, "a", null, each));
            WriteKryo.write(Object.class, twice, truth(twice));
        }
    }
}
