import java.time.LocalDate
import java.util.{ArrayList, Arrays, HashMap, HashSet, LinkedHashMap}
import java.util.concurrent.ConcurrentHashMap

import scala.collection.JavaConverters._
import scala.collection.mutable
import scala.concurrent.duration._
import scala.util.Random

import WriteScala.{hex, tagged, text}

/** Writes values of Enumerations, objects, durations and wrappers of collections by Flink's KryoSerializer, as WriteScala does. */
object WriteObjects {
  object Weekday extends Enumeration { val Monday, Tuesday, Wednesday = Value }
  object Level extends Enumeration {
    val Low = Value(0, "low level")
    val High = Value("high level")
  }
  object Gap extends Enumeration {
    val Below = Value(-2)
    val Above = Value(7)
  }

  sealed trait Shape
  case object Empty extends Shape
  case object Full extends Shape { val volume = 5 }

  def name(value: Any): String = value match {
    case day: Weekday.Value => day.toString
    case level: Level.Value => if (level == Level.Low) "Low" else "High"
    case shape: Shape => shape.toString
    case other => other.toString
  }

  def truth(value: Any): String = value match {
    case found @ (_: Enumeration#Value | _: Shape) => text(name(found))
    case found: FiniteDuration => tagged("duration", found.toNanos)
    case found: Deadline => truth(found.time)
    case Some(inner) => truth(inner)
    case found: LocalDate => tagged("date", found.toEpochDay)
    case found: (_, _) => s"[${truth(found._1)}, ${truth(found._2)}]"
    case found: java.util.Map[_, _] => truth(found.asScala)
    case found: java.util.Collection[_] => found.asScala.iterator.map(truth).mkString("[", ", ", "]")
    case found: scala.collection.Map[_, _] =>
      found.toSeq.map { case (key, each) => s"[${truth(key)}, ${truth(each)}]" }.mkString("{\"map\": [", ", ", "]}")
    case found: scala.collection.Iterable[_] => found.iterator.map(truth).mkString("[", ", ", "]")
    case found => WriteScala.truth(found)
  }

  val days: Vector[Weekday.Value] = Weekday.values.toVector

  def leaf(random: Random): Any = random.nextInt(9) match {
    case 0 | 1 => days(random.nextInt(days.size))
    case 2 => if (random.nextBoolean) Level.Low else Level.High
    case 3 => if (random.nextBoolean) Empty else Full
    case 4 => FiniteDuration(random.nextInt(99) - 49, java.util.concurrent.TimeUnit.values.apply(random.nextInt(7)))
    case 5 => Seq(Long.MaxValue.nanos, -Long.MaxValue.nanos, 106751.days, Deadline(3.seconds), 1.nano)(random.nextInt(5))
    case 6 => random.nextInt
    case 7 => LocalDate.of(2024, 1, 1 + random.nextInt(2))
    case _ => if (random.nextBoolean) "text" else null
  }

  def value(random: Random, depth: Int): Any = {
    def next: Any = value(random, depth - 1)
    def some: List[Any] = List.fill(random.nextInt(5))(next)
    def entries: List[(String, Any)] = some.map(each => "k" + random.nextInt(50) -> each)
    if (depth <= 0 || random.nextInt(4) == 0) leaf(random)
    else random.nextInt(18) match {
      case 0 => some.toVector.asJava
      case 1 => entries.toMap.asJava
      case 2 => new ArrayList[Any](some.asJava).asScala
      case 3 => new LinkedHashMap[String, Any](entries.toMap.asJava).asScala
      case 4 => some.toBuffer.asJava
      case 5 => mutable.HashMap(entries: _*).asJava
      case 6 => days.toSet.asJava
      case 7 => mutable.HashSet(days: _*).asJava
      case 8 => new HashSet[Any](Arrays.asList(Weekday.Monday.id, "b")).asScala
      case 9 => new ConcurrentHashMap[String, Any](Map("a" -> Weekday.Monday, "b" -> Level.Low).asJava).asScala
      case 10 => some.toIterable.asJavaCollection
      case 11 => { val shared = Vector(leaf(random)).asJava; Vector(shared, leaf(random), shared) }
      case 12 => { val shared = leaf(random); Vector(shared, shared, 5.seconds, 6.seconds, shared) }
      case 13 => Some(next)
      case 14 => (next, next)
      case 15 => Vector.fill(random.nextInt(6))(days(random.nextInt(days.size)))
      case 16 => mutable.HashMap(days.take(random.nextInt(4)).map(day => (day: Any) -> next): _*)
      case _ => some.toVector
    }
  }

  def write(kind: String, value: Any): Unit = {
    val bytes = new java.io.ByteArrayOutputStream
    WriteScala.serializers
      .getOrElseUpdate(kind, WriteScala.make(kind))
      .serialize(value, new org.apache.flink.core.memory.DataOutputViewStreamWrapper(bytes))
    println(s"""{"class": ${text(kind)}, "bytes": "${hex(bytes.toByteArray)}", "value": ${truth(value)}}""")
  }

  def main(arguments: Array[String]): Unit = {
    val random = new Random(30)
    val any = "java.lang.Object"
    WriteScala.snapshot(any)
    WriteScala.snapshot("case Price")
    for (day <- days) write(any, day)
    for (each <- Seq(Empty, Full, Weekday.values, "a+".r, Vector(Weekday.values, days.head))) write(any, each)
    for (_ <- 1 to arguments(0).toInt) write(any, value(random, 3))
    for (each <- Seq(Gap.Below, Gap.Above, Vector(1, Weekday))) {
      write("scala.Option", each)
    }
    WriteScala.snapshot("scala.Option")
  }
}
