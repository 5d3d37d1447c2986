import java.io.ByteArrayOutputStream
import java.math.{MathContext, RoundingMode, BigDecimal => JavaDecimal, BigInteger}
import java.util.{ArrayList, Arrays, LinkedHashMap, UUID}

import scala.collection.{immutable, mutable}
import scala.util.Random

import org.apache.flink.api.common.serialization.SerializerConfigImpl
import org.apache.flink.api.common.typeutils.{TypeSerializer, TypeSerializerSnapshot}
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer
import org.apache.flink.api.scala._
import org.apache.flink.core.memory.DataOutputViewStreamWrapper

/** Writes values of Scala by Flink's KryoSerializer, and case classes with such fields by the Scala API's serializers.
  *
  * One line of JSON each, as WriteKryo does: a truth of a tuple is a list, that of an Option the value or null, that of
  * an Either {"map": [["left", value]]}. Kinds that begin with "case" are those of serializers of the Scala API.
  */
object WriteScala {
  case class Price(name: String, amount: BigDecimal, count: BigInt, last: Int)
  case class Bag(first: Long, kept: mutable.Map[String, Long], any: Any, last: String)

  sealed trait Shape
  case class Circle(radius: Double) extends Shape
  case object Empty extends Shape

  def text(value: String): String =
    value.map(c => if (c < 32 || c > 126 || c == '"' || c == '\\') f"\\u${c.toInt}%04x" else c.toString).mkString("\"", "", "\"")

  def hex(bytes: Array[Byte]): String = bytes.map(each => f"${each & 0xff}%02x").mkString

  def tagged(tag: String, value: Any): String = s"{${text(tag)}: ${text(value.toString)}}"

  def pairs(all: Iterable[(Any, Any)]): String =
    all.map { case (key, value) => s"[${truth(key)}, ${truth(value)}]" }.mkString("{\"map\": [", ", ", "]}")

  def truth(value: Any): String = value match {
    case null | None | () => "null"
    case Some(inner) => truth(inner)
    case Left(inner) => pairs(Seq("left" -> inner))
    case Right(inner) => pairs(Seq("right" -> inner))
    case found: BigDecimal => tagged("big", found.bigDecimal)
    case found: BigInt => tagged("big", found.bigInteger)
    case found @ (_: JavaDecimal | _: BigInteger) => tagged("big", found)
    case found @ (_: Boolean | _: Byte | _: Short | _: Int | _: Long) => found.toString
    case found: Float => tagged("float", found)
    case found: Double => tagged("double", found)
    case found: Array[Byte] => tagged("bytes", hex(found))
    case found: Array[_] => found.map(truth).mkString("[", ", ", "]")
    case found: scala.collection.Map[_, _] => pairs(found.toSeq)
    case found: Range => found.map(truth).mkString("[", ", ", "]")
    case found: scala.collection.Iterable[_] => found.iterator.map(truth).mkString("[", ", ", "]")
    case found: java.util.Map[_, _] =>
      val all = mutable.ListBuffer[(Any, Any)]()
      found.forEach((key: Any, each: Any) => all += key -> each)
      pairs(all)
    case found: java.util.Collection[_] => found.toArray.map(truth).mkString("[", ", ", "]")
    case found: Symbol => text(found.name)
    case found: Product if found.getClass.getName.startsWith("scala.Tuple") => found.productIterator.map(truth).mkString("[", ", ", "]")
    case found: Shape => tagged("own", found.getClass.getName)
    case found => text(found.toString)
  }

  val texts = Seq("", "a", "abc", "Kryo", "caf\u00e9", "\ud83d\ude00 x", "quote \" and \\", "line\nbreak")
  val contexts = Seq(MathContext.UNLIMITED, MathContext.DECIMAL32, MathContext.DECIMAL64, MathContext.DECIMAL128,
    new MathContext(7, RoundingMode.FLOOR), new MathContext(1000000, RoundingMode.UNNECESSARY), new MathContext(60, RoundingMode.UP))

  def decimal(random: Random): BigDecimal = {
    val unscaled = BigInt(random.nextInt(Seq(1, 8, 64, 65, 200)(random.nextInt(5))) + 1, random)
    val java = new JavaDecimal((if (random.nextBoolean) unscaled else -unscaled).bigInteger, random.nextInt(40) - 9)
    val found = random.nextInt(4) match {
      case 0 => BigDecimal(random.nextInt(9)) // one that Scala keeps
      case 1 => new BigDecimal(java, contexts(random.nextInt(contexts.size)))
      case 2 => new BigDecimal(JavaDecimal.valueOf(random.nextInt(9)), contexts(random.nextInt(contexts.size))) // one that Java keeps
      case _ => BigDecimal(java)
    }
    if (random.nextBoolean) found.hashCode // which it remembers
    found
  }

  def whole(random: Random): BigInt = random.nextInt(3) match {
    case 0 => BigInt(random.nextInt(2000) - 1000) // most of which Scala keeps
    case 1 => BigInt(random.nextLong)
    case _ => -BigInt(random.nextInt(300) + 1, random)
  }

  def leaf(random: Random): Any = random.nextInt(14) match {
    case 0 => random.nextInt
    case 1 => random.nextLong
    case 2 => random.nextDouble
    case 3 => random.nextBoolean
    case 4 | 5 => texts(random.nextInt(texts.size))
    case 6 | 7 => decimal(random)
    case 8 | 9 => whole(random)
    case 10 => Symbol("s" + random.nextInt(5))
    case 11 => None
    case 12 => new UUID(random.nextLong, random.nextLong)
    case _ => if (random.nextBoolean) () else null
  }

  /** A value of classes that have numbers of their own in the Scala API; ``named``: also of others. */
  def value(random: Random, depth: Int, named: Boolean): Any = {
    def next: Any = value(random, depth - 1, named)
    def some: List[Any] = List.fill(random.nextInt(6))(next)
    def ints: List[Int] = List.fill(random.nextInt(6))(random.nextInt(300))
    def entries: List[(Any, Any)] = {
      val numbers = random.nextBoolean
      List.fill(random.nextInt(7))((if (numbers) random.nextInt(99) else "k" + random.nextInt(99)) -> next)
    }
    if (depth <= 0 || random.nextInt(4) == 0) leaf(random)
    else random.nextInt(if (named) 34 else 18) match {
      case 0 => Some(next)
      case 1 => if (random.nextBoolean) Left(next) else Right(next)
      case 2 => some.toVector
      case 3 => (ints.toSet + 5).map(each => each: Any)
      case 4 | 5 => (entries :+ ("k" -> next)).toMap
      case 6 => mutable.HashMap(entries: _*)
      case 7 => mutable.HashSet(some: _*)
      case 8 => mutable.BitSet(ints: _*)
      case 9 => Tuple1(next)
      case 10 => (next, next)
      case 11 => (next, next, next)
      case 12 => (next, next, 3, next, 5, next, 7)
      case 13 => (1, next, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, "last")
      case 14 => Seq((1, 2), (1L, 2), (1, 2L), (-1.5, 2), (2, 0.25), (3L, 0.5), (0.5, 3L), (4L, 5L), (0.5, 1.5),
          Tuple1(-7), Tuple1(-7L), Tuple1(0.5))(random.nextInt(12))
      case 15 => { val shared = some.toVector; Vector(shared, shared, decimal(random)) }
      case 16 => { val shared = decimal(random); Vector(shared, shared, new BigDecimal(shared.bigDecimal, shared.mc), whole(random), whole(random)) }
      case 17 => new ArrayList[Any](Arrays.asList(next, decimal(random), next))
      case 18 | 19 | 20 => some
      case 21 => Nil
      case 22 => immutable.Queue(some: _*)
      case 23 => mutable.ArrayBuffer(some: _*)
      case 24 => mutable.ListBuffer(some: _*)
      case 25 => immutable.TreeMap(ints.map(each => each -> next): _*)
      case 26 => immutable.TreeMap(ints.map(each => ("k" + each) -> next): _*)
      case 27 => immutable.TreeSet(ints: _*)
      case 28 => immutable.ListMap(entries: _*)
      case 29 => immutable.BitSet(ints.map(_ * random.nextInt(3)): _*)
      case 30 => if (random.nextBoolean) Set() else Map()
      case 31 => mutable.LinkedHashMap(entries: _*)
      case 32 => if (random.nextBoolean) mutable.LinkedHashSet(some: _*) else mutable.Queue(some: _*)
      case _ => if (random.nextBoolean) mutable.WrappedArray.make[Int](ints.toArray) else mutable.WrappedArray.make[String](Array("a", null, "b"))
    }
  }

  val serializers: mutable.Map[String, TypeSerializer[Any]] = mutable.Map()

  def make(kind: String): TypeSerializer[Any] = (kind match {
    case "case Price" => createTypeInformation[Price].createSerializer(new SerializerConfigImpl())
    case "case Bag" => createTypeInformation[Bag].createSerializer(new SerializerConfigImpl())
    case _ => new KryoSerializer[Any](Class.forName(kind).asInstanceOf[Class[Any]], new SerializerConfigImpl())
  }).asInstanceOf[TypeSerializer[Any]]

  def write(kind: String, value: Any): Unit = {
    val bytes = new ByteArrayOutputStream
    serializers.getOrElseUpdate(kind, make(kind)).serialize(value, new DataOutputViewStreamWrapper(bytes))
    val shown = value match {
      case Price(name, amount, count, last) => s"[${truth(name)}, ${truth(amount)}, ${truth(count)}, $last]"
      case Bag(first, kept, any, last) => s"[$first, ${truth(kept)}, ${truth(any)}, ${truth(last)}]"
      case _ => truth(value)
    }
    println(s"""{"class": ${text(kind)}, "bytes": "${hex(bytes.toByteArray)}", "value": $shown}""")
  }

  def snapshot(kind: String): Unit = {
    val bytes = new ByteArrayOutputStream
    TypeSerializerSnapshot.writeVersionedSnapshot(new DataOutputViewStreamWrapper(bytes), make(kind).snapshotConfiguration())
    println(s"""{"class": ${text(kind)}, "snapshot": "${hex(bytes.toByteArray)}"}""")
  }

  def main(arguments: Array[String]): Unit = {
    val count = arguments(0).toInt
    val random = new Random(20)
    val any = "java.lang.Object"
    val decimals = "scala.math.BigDecimal"
    val wholes = "scala.math.BigInt"
    val maps = "scala.collection.mutable.Map"
    Seq(any, decimals, wholes, maps, "scala.Option", "scala.Symbol", "case Price", "case Bag").foreach(snapshot)
    for (_ <- 1 to count / 4) write(decimals, decimal(random))
    for (value <- Seq("0", "-0.0", "1E+1000", "1E-1000", "123456789012345678901234567890123456789.5")) write(decimals, BigDecimal(value, MathContext.UNLIMITED))
    for (_ <- 1 to count / 4) write(wholes, whole(random))
    for (_ <- 1 to count / 8) write(maps, mutable.Map(Seq.fill(random.nextInt(5))("k" + random.nextInt(99) -> random.nextLong): _*))
    for (value <- Seq(Some("a"), None, Some(decimal(random)), Some(Some(3)))) write("scala.Option", value)
    write("scala.Symbol", 'symbol)
    for (_ <- 1 to count) write(any, value(random, 3, named = false))
    for (_ <- 1 to count / 4) write("case Price", Price(texts(random.nextInt(texts.size)), decimal(random), whole(random), random.nextInt))
    for (_ <- 1 to count) write("case Bag", Bag(random.nextLong, mutable.Map("a" -> random.nextLong), value(random, 3, named = true), "end"))
    for (value <- Seq(Circle(2.5), Empty, Vector(1, Empty), Range(0, 3))) write(any, value)
  }
}
