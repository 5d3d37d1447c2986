import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import java.io.ByteArrayOutputStream;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.EncoderFactory;

/** Prints values in the frames of two registries, which their own encoders write: name, id, value in hexadecimal. */
public class Frames {
  static byte[] avro(Schema schema, int id, Integer qty) throws Exception {
    GenericRecord record = new GenericData.Record(schema);
    record.put("id", schema.getField("id").schema().getType() == Schema.Type.LONG ? (Object) (long) id : (Object) id);
    if (qty != null) record.put("qty", qty);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    var encoder = EncoderFactory.get().binaryEncoder(out, null);
    new GenericDatumWriter<GenericRecord>(schema).write(record, encoder);
    encoder.flush();
    return out.toByteArray();
  }

  static void print(String name, Object id, byte[] value) {
    System.out.println("FRAME " + name + " " + id + " " + HexFormat.of().formatHex(value));
  }

  public static void main(String[] args) throws Exception {
    Schema old = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Item\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"}]}");
    Schema now = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Item\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"qty\",\"type\":\"int\",\"default\":1}]}");
    UUID[] uuids = {UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"), UUID.fromString("00000000-0000-4000-8000-0000000000ff")};
    byte[][] values = {avro(old, 1, null), avro(now, 2, 7), avro(old, 3, null)};
    for (String compression : new String[] {"NONE", "ZLIB"}) {
      var config = new GlueSchemaRegistryConfiguration(Map.of("region", "us-east-1", "compression", compression));
      var encoder = new SerializationDataEncoder(config);
      for (int i = 0; i < values.length; i++) print("glue-" + compression, uuids[i % 2], encoder.write(values[i], uuids[i % 2]));
      byte[] json = "{\"n\": 1}".getBytes();
      print("glue-json-" + compression, uuids[0], encoder.write(json, uuids[0]));
    }
    long[] ids = {5, 1L << 40};
    for (int i = 0; i < values.length; i++) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      out.write(0);
      var reference = io.apicurio.registry.resolver.strategy.ArtifactReference.builder().globalId(ids[i % 2]).build();
      new io.apicurio.registry.serde.DefaultIdHandler().writeId(reference, out);
      out.write(values[i]);
      print("apicurio", ids[i % 2], out.toByteArray());
    }
  }
}
