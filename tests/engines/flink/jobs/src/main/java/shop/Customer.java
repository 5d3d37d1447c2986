package shop;

/** A POJO of plain fields. */
public class Customer {
    public String name;
    public long since;
    public int orders;
    public double spent;
    public boolean active;
    public Integer rating;

    public static Customer of(long id) {
        Customer made = new Customer();
        made.name = "customer number " + id;
        made.since = 1_600_000_000_000L + id;
        made.orders = (int) (id % 1000);
        made.spent = id * 0.01;
        made.active = id % 2 == 0;
        made.rating = id % 4 == 0 ? null : (int) (id % 5);
        return made;
    }
}
