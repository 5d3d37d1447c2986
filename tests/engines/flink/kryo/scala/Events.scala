package shop

import scala.collection.{immutable, mutable}

/** Classes of a job in Scala that Kryo writes: those of a sealed trait, and all that case classes hold. */
object Weekday extends Enumeration { val Monday, Tuesday, Wednesday = Value }

object Level extends Enumeration {
  val Low = Value("low level")
  val Middle: Value = Value
  val High = Value(5, "high level")
  val Next = Value
}

trait Stamped {
  private val created = 1000L
  protected var changes = 0
  val origin: String
  def createdAt: Long = created
  def change(): Unit = changes += 1
  def changed: Int = changes
}

class Cents(val amount: Long) extends AnyVal

sealed trait Event
case class Click(user: String, n: Int, tags: List[String], o: Option[Long]) extends Event
case class Order(id: Long, lines: Seq[Line], total: BigDecimal, note: Option[String] = None, price: Cents = new Cents(5))
    extends Event
case class Line(sku: String, count: Int, size: (Int, Int))
case class Many(
    v: Vector[Int],
    m: Map[String, Line],
    s: Set[String],
    t: (String, Long, Option[Line]),
    e: Either[String, Click],
    big: BigInt,
    day: Weekday.Value,
    level: Level.Value,
    sorted: immutable.TreeMap[String, Int],
    buffer: mutable.ArrayBuffer[Line],
    array: Array[Double],
    cents: List[Cents],
    unit: Unit,
    symbol: Symbol,
    ordering: Seq[Either[Int, Option[Double]]],
    any: Any,
    some: Some[Int],
    list: java.util.List[Integer],
    at: java.time.Instant,
    left: Left[Int, String],
    self: Option[Event]
) extends Event
case class Box[T](value: T, more: List[T] = Nil) extends Event
class Visit(val user: String, private var seconds: Int, hidden: Double) extends Event with Stamped with java.io.Serializable {
  val origin: String = "web " + user
  private[this] val code: Int = user.length
  @transient val cached: String = "cached"
  lazy val score: Int = seconds * 7
  lazy val label: String = s"$user at $code"
  @transient lazy val dropped: Long = 5L
  def cost: Double = hidden + code
  def inside: Int = seconds
  def codeIs: Int = code
}
class Slow(val a: Int) extends Event { lazy val only: Long = a * 3L }
class Crowd(val a: Int) extends Event {
  lazy val l0 = a
  lazy val l1 = "b" + a
  lazy val l2 = a + 2L
  lazy val l3 = a % 2 == 0
  lazy val l4 = a * 0.5
  lazy val l5 = List(a)
  lazy val l6 = Option(a)
  lazy val l7 = a + 7
  lazy val l8 = a + 8
  lazy val l9 = "last" + a
}
class Base(val id: Int) { lazy val mine: Int = id + 1 }
class Derived(id: Int, val extra: String) extends Base(id) with Event { lazy val own: String = extra * 2 }
case object Stop extends Event
case object Counted extends Event { val volume = 7; val name = "counted" }
sealed abstract class Nested extends Event
object Nested {
  case class Leaf(x: Double) extends Nested
  case class Node(left: Nested, right: Nested) extends Nested
  case object Nothing extends Nested
}
