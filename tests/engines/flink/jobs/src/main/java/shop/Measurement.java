package shop;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Conversion;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.specific.AvroGenerated;
import org.apache.avro.specific.SpecificData;
import org.apache.avro.specific.SpecificRecordBase;

/** A specific Avro record with the parts that Avro's compiler gives such a class. */
@AvroGenerated
public class Measurement extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
        "{\"type\":\"record\",\"name\":\"Measurement\",\"namespace\":\"shop\",\"doc\":\"what a \\\"sensor\\\" said \u2713\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"long\"},"
        + "{\"name\":\"place\",\"type\":[\"null\",\"string\"],\"default\":null},"
        + "{\"name\":\"quality\",\"type\":{\"type\":\"enum\",\"name\":\"Quality\",\"symbols\":[\"GOOD\",\"FAIR\",\"BAD\"]}},"
        + "{\"name\":\"values\",\"type\":{\"type\":\"array\",\"items\":\"double\"}},"
        + "{\"name\":\"labels\",\"type\":{\"type\":\"map\",\"values\":\"string\"}},"
        + "{\"name\":\"taken\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}},"
        + "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"logicalType\":\"date\"}},"
        + "{\"name\":\"price\",\"type\":{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":20,\"scale\":4}},"
        + "{\"name\":\"raw\",\"type\":[\"null\",\"bytes\",\"int\"],\"default\":null},"
        + "{\"name\":\"ratio\",\"type\":\"float\"},"
        + "{\"name\":\"valid\",\"type\":\"boolean\"}]}");
    private static final SpecificData MODEL$ = new SpecificData();
    static {
        MODEL$.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        MODEL$.addLogicalTypeConversion(new TimeConversions.DateConversion());
        MODEL$.addLogicalTypeConversion(new Conversions.DecimalConversion());
    }
    private static final Conversion<?>[] conversions = new Conversion<?>[] {null, null, null, null, null,
        new TimeConversions.TimestampMillisConversion(), new TimeConversions.DateConversion(), new Conversions.DecimalConversion(), null, null, null};

    private long id;
    private String place;
    private Quality quality;
    private List<Double> values;
    private Map<String, String> labels;
    private Instant taken;
    private LocalDate day;
    private BigDecimal price;
    private Object raw;
    private float ratio;
    private boolean valid;

    public Measurement() {}

    public static Schema getClassSchema() {
        return SCHEMA$;
    }

    @Override public SpecificData getSpecificData() {
        return MODEL$;
    }

    @Override public Schema getSchema() {
        return SCHEMA$;
    }

    @Override public Conversion<?> getConversion(int field) {
        return conversions[field];
    }

    @Override public Object get(int field) {
        switch (field) {
            case 0: return id;
            case 1: return place;
            case 2: return quality;
            case 3: return values;
            case 4: return labels;
            case 5: return taken;
            case 6: return day;
            case 7: return price;
            case 8: return raw;
            case 9: return ratio;
            case 10: return valid;
            default: throw new IndexOutOfBoundsException();
        }
    }

    @SuppressWarnings("unchecked")
    @Override public void put(int field, Object value) {
        switch (field) {
            case 0: id = (Long) value; break;
            case 1: place = value == null ? null : value.toString(); break;
            case 2: quality = (Quality) value; break;
            case 3: values = (List<Double>) value; break;
            case 4: labels = (Map<String, String>) value; break;
            case 5: taken = (Instant) value; break;
            case 6: day = (LocalDate) value; break;
            case 7: price = (BigDecimal) value; break;
            case 8: raw = (Object) value; break;
            case 9: ratio = (Float) value; break;
            case 10: valid = (Boolean) value; break;
            default: throw new IndexOutOfBoundsException();
        }
    }

    public long getId() {
        return id;
    }

    public void setId(long value) {
        id = value;
    }

    public String getPlace() {
        return place;
    }

    public void setPlace(String value) {
        place = value;
    }

    public Quality getQuality() {
        return quality;
    }

    public void setQuality(Quality value) {
        quality = value;
    }

    public List<Double> getValues() {
        return values;
    }

    public void setValues(List<Double> value) {
        values = value;
    }

    public Map<String, String> getLabels() {
        return labels;
    }

    public void setLabels(Map<String, String> value) {
        labels = value;
    }

    public Instant getTaken() {
        return taken;
    }

    public void setTaken(Instant value) {
        taken = value;
    }

    public LocalDate getDay() {
        return day;
    }

    public void setDay(LocalDate value) {
        day = value;
    }

    public BigDecimal getPrice() {
        return price;
    }

    public void setPrice(BigDecimal value) {
        price = value;
    }

    public Object getRaw() {
        return raw;
    }

    public void setRaw(Object value) {
        raw = value;
    }

    public float getRatio() {
        return ratio;
    }

    public void setRatio(float value) {
        ratio = value;
    }

    public boolean getValid() {
        return valid;
    }

    public void setValid(boolean value) {
        valid = value;
    }

    public static Measurement of(long id) {
        Measurement made = new Measurement();
        List<Double> values = new ArrayList<>();
        for (int i = 0; i < id % 4; i++) values.add(id / 4.0 - i);
        Map<String, String> labels = new HashMap<>();
        for (int i = 0; i < id % 3; i++) labels.put("l" + i, "\u00e4" + id);
        Object raw = id % 3 == 0 ? null : id % 3 == 1 ? ByteBuffer.wrap(new byte[] {(byte) id, 0, -1}) : (Object) (int) -id;
        List<Object> all = Arrays.asList(id, id % 5 == 2 ? null : "place-" + id % 9, Quality.values()[(int) (id % 3)], values, labels,
            Instant.ofEpochMilli(1_700_000_000_123L + id * 1000), LocalDate.of(1969, 12, 28).plusDays(id), BigDecimal.valueOf(id * 100_003 - 5_000_000, 4),
            raw, id * 0.25f, id % 2 == 0);
        for (int i = 0; i < all.size(); i++) made.put(i, all.get(i));
        return made;
    }
}
