package shop;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;

/** A POJO with nulls, a list and an enum. */
public class Order {
    public enum Status { OPEN, PAID, LOST }

    public long id;
    public String customer;
    public BigDecimal total;
    public Status status;
    public List<Line> lines;
    public Integer discount;

    public static class Line {
        public String article;
        public int pieces;

        public Line() {}

        public Line(String article, int pieces) {
            this.article = article;
            this.pieces = pieces;
        }
    }

    public Order() {}

    public static Order of(long id) {
        Order order = new Order();
        order.id = id;
        order.customer = id % 7 == 3 ? null : "c\u00fcst-" + id % 11;
        order.total = id % 6 == 1 ? null : BigDecimal.valueOf(id * 1001 - 77, 2);
        order.status = Status.values()[(int) (id % 3)];
        order.lines = new ArrayList<>();
        for (int i = 0; i < id % 3; i++) order.lines.add(new Line("a" + i, (int) id + i));
        order.discount = id % 2 == 0 ? null : (int) (id % 30);
        return order;
    }
}
