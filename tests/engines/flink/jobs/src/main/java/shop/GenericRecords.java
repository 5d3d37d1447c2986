package shop;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/** Generic Avro records over all of Avro's types: nested, in unions, and with logical types. */
public final class GenericRecords {
    private static final String TEXT = "{\"type\":\"record\",\"name\":\"Event\",\"namespace\":\"shop.avro\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"long\"},"
        + "{\"name\":\"small\",\"type\":\"int\"},"
        + "{\"name\":\"none\",\"type\":\"null\"},"
        + "{\"name\":\"name\",\"type\":[\"string\",\"null\"]},"
        + "{\"name\":\"body\",\"type\":[\"null\",\"long\",\"string\",\"boolean\",\"double\",\"bytes\","
        + "{\"type\":\"record\",\"name\":\"Point\",\"fields\":[{\"name\":\"x\",\"type\":\"double\"},{\"name\":\"y\",\"type\":[\"null\",\"float\"]}]},"
        + "{\"type\":\"enum\",\"name\":\"Side\",\"symbols\":[\"LEFT\",\"RIGHT\"]},{\"type\":\"array\",\"items\":\"int\"},{\"type\":\"map\",\"values\":\"long\"}]},"
        + "{\"name\":\"side\",\"type\":\"Side\"},"
        + "{\"name\":\"hash\",\"type\":{\"type\":\"fixed\",\"name\":\"Hash\",\"size\":4}},"
        + "{\"name\":\"points\",\"type\":{\"type\":\"array\",\"items\":\"Point\"}},"
        + "{\"name\":\"grid\",\"type\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":[\"null\",\"int\"]}}},"
        + "{\"name\":\"places\",\"type\":{\"type\":\"map\",\"values\":\"Point\"}},"
        + "{\"name\":\"parent\",\"type\":[\"null\",\"Event\"]},"
        + "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"logicalType\":\"date\"}},"
        + "{\"name\":\"time\",\"type\":{\"type\":\"int\",\"logicalType\":\"time-millis\"}},"
        + "{\"name\":\"micros\",\"type\":{\"type\":\"long\",\"logicalType\":\"time-micros\"}},"
        + "{\"name\":\"stamp\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}},"
        + "{\"name\":\"fine\",\"type\":[\"null\",{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}]},"
        + "{\"name\":\"local\",\"type\":{\"type\":\"long\",\"logicalType\":\"local-timestamp-millis\"}},"
        + "{\"name\":\"amount\",\"type\":{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":30,\"scale\":3}},"
        + "{\"name\":\"share\",\"type\":{\"type\":\"fixed\",\"name\":\"Share\",\"size\":6,\"logicalType\":\"decimal\",\"precision\":12,\"scale\":2}},"
        + "{\"name\":\"uuid\",\"type\":{\"type\":\"string\",\"logicalType\":\"uuid\"}}]}";

    private static final String PARENT = "{\"name\":\"parent\",\"type\":[\"null\",\"Event\"]},";

    private GenericRecords() {}

    /** The schema; a recursive one has a field of its own type. */
    public static Schema schema(boolean recursive) {
        return new Schema.Parser().parse(recursive ? TEXT : TEXT.replace(PARENT, ""));
    }

    public static GenericRecord of(Schema schema, long id) {
        return of(schema, id, (int) (id % 3));
    }

    private static GenericRecord of(Schema schema, long id, int ancestors) {
        int i = (int) id;
        Schema body = schema.getField("body").schema();
        Schema point = body.getTypes().get(6), side = body.getTypes().get(7);
        GenericRecord event = new GenericData.Record(schema);
        event.put("id", id % 2 == 0 ? id : -id * 1_000_000_007L);
        event.put("small", i * -70_001);
        event.put("none", null);
        event.put("name", id % 4 == 1 ? null : "n\u00e4me-" + "x".repeat(i % 80));
        Object[] bodies = {null, id, "b" + id, id % 20 == 3, id / 8.0, ByteBuffer.wrap(new byte[] {1, (byte) i}), point(point, i),
            new GenericData.EnumSymbol(side, "RIGHT"), List.of(i, -i), Map.of("m", id)};
        event.put("body", bodies[i % bodies.length]);
        event.put("side", new GenericData.EnumSymbol(side, id % 2 == 0 ? "LEFT" : "RIGHT"));
        event.put("hash", new GenericData.Fixed(schema.getField("hash").schema(), new byte[] {(byte) i, 2, -3, 0}));
        List<GenericRecord> points = new ArrayList<>();
        for (int n = 0; n < i % 3; n++) points.add(point(point, i + n));
        event.put("points", points);
        List<List<Integer>> grid = new ArrayList<>();
        for (int n = 0; n < i % 4; n++) grid.add(n == 1 ? new ArrayList<>() : java.util.Arrays.asList(n, null, -i));
        event.put("grid", grid);
        Map<String, GenericRecord> places = new HashMap<>();
        for (int n = 0; n < i % 3; n++) places.put("place" + n, point(point, i - n));
        event.put("places", places);
        if (schema.getField("parent") != null) event.put("parent", ancestors == 0 ? null : of(schema, id + 1, ancestors - 1));
        event.put("day", i - 40);
        event.put("time", i * 86_399 % 86_400_000);
        event.put("micros", id * 86_399_999L % 86_400_000_000L);
        event.put("stamp", 1_700_000_000_123L - id * 100_000_000_000L);
        event.put("fine", id % 5 == 0 ? null : 1_700_000_000_123_456L - id * 100_000_000_000_000L);
        event.put("local", 1_700_000_000_000L + id);
        event.put("amount", ByteBuffer.wrap(BigInteger.valueOf(id * 7_919 - 300_000).multiply(BigInteger.TEN.pow(i % 15)).toByteArray()));
        event.put("share", new GenericData.Fixed(schema.getField("share").schema(), extended(id * 100 - 1_000)));
        event.put("uuid", new java.util.UUID(id, -id).toString());
        return event;
    }

    private static byte[] extended(long value) {
        byte[] out = new byte[6];
        for (int i = 5; i >= 0; i--, value >>= 8) out[i] = (byte) value;
        return out;
    }

    private static GenericRecord point(Schema schema, int i) {
        GenericRecord point = new GenericData.Record(schema);
        point.put("x", i * 0.5);
        point.put("y", i % 2 == 0 ? null : i * 0.125f);
        return point;
    }
}
