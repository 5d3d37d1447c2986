package shop;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.PojoField;
import org.apache.flink.api.java.typeutils.PojoTypeInfo;

/** A POJO of which a job keeps some fields, and after an upgrade more. */
public class Subscriber {
    public long id;
    public String note;
    public Integer kept;
    public String added;
    public double plus;

    public Subscriber() {}

    public static Subscriber of(long id) {
        Subscriber made = new Subscriber();
        made.id = id;
        made.note = "note" + id;
        made.kept = id % 3 == 0 ? null : (int) id;
        made.added = "added" + id;
        made.plus = id / 2.0;
        return made;
    }

    /** The fields that the version of the job keeps. */
    public static TypeInformation<Subscriber> type(boolean upgraded) {
        List<PojoField> fields = new ArrayList<>();
        try {
            fields.add(new PojoField(Subscriber.class.getField("id"), Types.LONG));
            fields.add(new PojoField(Subscriber.class.getField("kept"), Types.INT));
            fields.add(new PojoField(Subscriber.class.getField("note"), Types.STRING));
            if (upgraded) fields.add(new PojoField(Subscriber.class.getField("added"), Types.STRING));
            if (upgraded) fields.add(new PojoField(Subscriber.class.getField("plus"), Types.DOUBLE));
        } catch (NoSuchFieldException e) {
            throw new IllegalStateException(e);
        }
        return new PojoTypeInfo<>(Subscriber.class, fields);
    }
}
