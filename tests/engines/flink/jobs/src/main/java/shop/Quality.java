package shop;

import org.apache.avro.Schema;
import org.apache.avro.generic.GenericEnumSymbol;

/** An Avro enum. */
public enum Quality implements GenericEnumSymbol<Quality> {
    GOOD, FAIR, BAD;

    public static final Schema SCHEMA$ = Schema.createEnum("Quality", null, "shop", java.util.Arrays.asList("GOOD", "FAIR", "BAD"));

    @Override public Schema getSchema() {
        return SCHEMA$;
    }
}
