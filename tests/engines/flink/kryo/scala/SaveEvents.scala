import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import scala.collection.concurrent.TrieMap
import scala.collection.mutable
import scala.util.Random

import org.apache.flink.api.common.functions.OpenContext
import org.apache.flink.api.common.state._
import org.apache.flink.api.common.typeinfo.{TypeInformation, Types}
import org.apache.flink.api.scala._
import org.apache.flink.configuration.Configuration
import org.apache.flink.core.execution.SavepointFormatType
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
import org.apache.flink.streaming.api.functions.KeyedProcessFunction
import org.apache.flink.streaming.api.functions.source.SourceFunction
import org.apache.flink.util.Collector

import shop._

/** Runs a job whose state has classes of Scala that Kryo writes, and takes its savepoints.
  *
  * Arguments: the backend, the folder, the number of events, and the forms of savepoints. Its first operator has types of
  * Scala's API besides, the second one only those of Kryo. The truth is a line of JSON for each cell: an object is
  * {"object": class, "fields": [[name, value], ...]}.
  */
object SaveEvents {
  val seen = new AtomicLong
  val truth: TrieMap[(String, String), String] = TrieMap()

  def fields(value: Any): Seq[(String, Any)] = value match {
    case Click(user, n, tags, o) => Seq("user" -> user, "n" -> n, "tags" -> tags, "o" -> o)
    case Order(id, lines, total, note, price) =>
      Seq("id" -> id, "lines" -> lines, "total" -> total, "note" -> note, "price" -> price.amount)
    case Line(sku, count, size) => Seq("sku" -> sku, "count" -> count, "size" -> size)
    case many: Many =>
      Seq("v" -> many.v, "m" -> many.m, "s" -> many.s, "t" -> many.t, "e" -> many.e, "big" -> many.big,
        "day" -> many.day, "level" -> many.level, "sorted" -> many.sorted, "buffer" -> many.buffer,
        "array" -> many.array, "cents" -> many.cents, "symbol" -> many.symbol,
        "ordering" -> many.ordering, "any" -> many.any, "some" -> many.some, "list" -> many.list, "at" -> many.at,
        "left" -> many.left, "self" -> many.self)
    case Box(content, more) => Seq("value" -> content, "more" -> more)
    case visit: Visit =>
      val isScored = visit.user.length % 2 == 0
      Seq("user" -> visit.user, "seconds" -> visit.inside, "hidden" -> (visit.cost - visit.codeIs), "origin" -> visit.origin,
        "code" -> visit.codeIs, "created" -> visit.createdAt, "changes" -> visit.changed,
        "score" -> (if (isScored) visit.score else null), "label" -> (if (isScored) null else visit.label))
    case slow: Slow => Seq("a" -> slow.a, "only" -> (if (slow.a % 2 == 0) slow.only else null))
    case crowd: Crowd =>
      def kept(bit: Int, value: => Any): Any = if ((crowd.a >> bit) % 2 == 1) value else null
      Seq("a" -> crowd.a, "l0" -> kept(0, crowd.l0), "l1" -> kept(1, crowd.l1), "l2" -> kept(2, crowd.l2),
        "l3" -> kept(3, crowd.l3), "l4" -> kept(4, crowd.l4), "l5" -> kept(5, crowd.l5), "l6" -> kept(6, crowd.l6),
        "l7" -> kept(7, crowd.l7), "l8" -> kept(8, crowd.l8), "l9" -> kept(9, crowd.l9))
    case derived: Derived =>
      Seq("id" -> derived.id, "mine" -> (if (derived.id % 2 == 0) derived.mine else null), "extra" -> derived.extra,
        "own" -> (if (derived.id % 3 == 0) derived.own else null))
    case Nested.Leaf(x) => Seq("x" -> x)
    case Nested.Node(left, right) => Seq("left" -> left, "right" -> right)
    case cents: Cents => Seq("amount" -> cents.amount)
  }

  def shown(value: Any): String = value match {
    case Stop | Counted | Nested.Nothing => WriteScala.text(value.toString)
    case found: Enumeration#Value => WriteScala.text(found.toString)
    case found: java.time.Instant => WriteScala.tagged("instant", found)
    case Some(inner) => shown(inner)
    case Left(inner) => s"""{"map": [["left", ${shown(inner)}]]}"""
    case Right(inner) => s"""{"map": [["right", ${shown(inner)}]]}"""
    case found: Array[_] => found.map(shown).mkString("[", ", ", "]")
    case found: scala.collection.Map[_, _] =>
      found.toSeq.map { case (key, each) => s"[${shown(key)}, ${shown(each)}]" }.mkString("{\"map\": [", ", ", "]}")
    case found: scala.collection.Iterable[_] => found.iterator.map(shown).mkString("[", ", ", "]")
    case found: java.util.List[_] => found.toArray.map(shown).mkString("[", ", ", "]")
    case found: Product if found.getClass.getName.startsWith("scala.Tuple") =>
      found.productIterator.map(shown).mkString("[", ", ", "]")
    case found: Any if found.getClass.getName.startsWith("shop.") =>
      val all = fields(found).map { case (name, each) => s"[${WriteScala.text(name)}, ${shown(each)}]" }
      s"""{"object": "${found.getClass.getName}", "fields": ${all.mkString("[", ", ", "]")}}"""
    case found => WriteScala.truth(found)
  }

  def text(random: Random): String = Seq("", "ada", "bob", "caf\u00e9", "\ud83d\ude00 x", "a \"b\"")(random.nextInt(6))

  def line(random: Random): Line = Line(text(random), random.nextInt(100) - 50, (random.nextInt(9), random.nextInt(9)))

  def some[T](random: Random, most: Int, value: => T): List[T] = List.fill(random.nextInt(most))(value)

  def option[T](random: Random, value: => T): Option[T] = if (random.nextBoolean) Some(value) else None

  def click(random: Random): Click =
    Click(text(random), random.nextInt, some(random, 4, text(random)), option(random, random.nextLong))

  def nested(random: Random, depth: Int): Nested = random.nextInt(if (depth > 0) 4 else 2) match {
    case 0 => Nested.Nothing
    case 1 => Nested.Leaf(random.nextDouble)
    case _ => Nested.Node(nested(random, depth - 1), nested(random, depth - 1))
  }

  def box(random: Random): Box[_] = random.nextInt(5) match {
    case 0 => Box(random.nextInt)
    case 1 => Box(text(random), List(text(random)))
    case 2 => Box(line(random), some(random, 3, line(random)))
    case 3 => Box(Box(random.nextLong))
    case _ => { val shared = line(random); Box(shared, List(shared, shared)) }
  }

  def many(random: Random): Many = Many(
    some(random, 5, random.nextInt(1000)).toVector, some(random, 7, text(random) -> line(random)).toMap, some(random, 7, text(random)).toSet,
    (text(random), random.nextLong, option(random, line(random))), if (random.nextBoolean) Left(text(random)) else Right(click(random)),
    BigInt(random.nextInt(99), random), Weekday(random.nextInt(3)), Level(Seq(0, 1, 5, 6)(random.nextInt(4))),
    scala.collection.immutable.TreeMap(some(random, 4, text(random) -> random.nextInt): _*),
    mutable.ArrayBuffer(some(random, 3, line(random)): _*), Array.fill(random.nextInt(3))(random.nextDouble),
    some(random, 3, new Cents(random.nextInt)), (), Symbol("s" + random.nextInt(3)),
    some(random, 3, if (random.nextBoolean) Left(random.nextInt) else Right(option(random, random.nextDouble))),
    Seq[Any](null, 5, Weekday.Tuesday, Stop, (1, "a"), Some(Set(1, 2)), Nil, text(random), Level)(random.nextInt(8)),
    Some(random.nextInt), new java.util.ArrayList(java.util.Arrays.asList[Integer](1, random.nextInt)), java.time.Instant.ofEpochMilli(random.nextInt),
    Left(random.nextInt), option(random, small(random)))

  def small(random: Random): Event = random.nextInt(3) match {
    case 0 => click(random)
    case 1 => Stop
    case _ => nested(random, 2)
  }

  def event(random: Random): Event = random.nextInt(15) match {
    case 0 | 1 => click(random)
    case 2 => Order(random.nextLong, some(random, 3, line(random)), BigDecimal(random.nextInt, 3), option(random, text(random)))
    case 3 => Order(1, Vector(line(random)), BigDecimal("1.50"))
    case 4 | 5 => many(random)
    case 6 | 7 => box(random)
    case 8 => { val found = new Visit(text(random), random.nextInt(99), random.nextInt(9) * 0.5); found.change(); fields(found); found }
    case 9 => Stop
    case 10 => Counted
    case 11 => nested(random, 3)
    case 12 => { val found = new Slow(random.nextInt(100)); fields(found); found }
    case 13 => { val found = new Crowd(random.nextInt(1024)); fields(found); found }
    case _ => { val found = new Derived(random.nextInt(100), text(random)); fields(found); found }
  }

  class Numbers(count: Long) extends SourceFunction[Long] {
    @volatile private var running = true
    override def run(context: SourceFunction.SourceContext[Long]): Unit = {
      for (number <- 0L until count) context.getCheckpointLock.synchronized(context.collect(number))
      while (running) Thread.sleep(20)
    }
    override def cancel(): Unit = running = false
  }

  class Keep(name: String, hasScalaTypes: Boolean) extends KeyedProcessFunction[String, Long, Long] {
    @transient private var one: ValueState[Event] = _
    @transient private var all: ListState[Event] = _
    @transient private var map: MapState[String, Event] = _
    @transient private var order: ValueState[Order] = _
    @transient private var ofClass: ValueState[Click] = _
    @transient private var stop: ValueState[Stop.type] = _

    override def open(context: OpenContext): Unit = {
      val state = getRuntimeContext
      val any = if (hasScalaTypes) createTypeInformation[Event] else TypeInformation.of(classOf[Event])
      one = state.getState(new ValueStateDescriptor("one", any))
      all = state.getListState(new ListStateDescriptor("all", any))
      map = state.getMapState(new MapStateDescriptor("map", Types.STRING, any))
      ofClass = state.getState(new ValueStateDescriptor("click", TypeInformation.of(classOf[Click])))
      stop = state.getState(new ValueStateDescriptor("stop", TypeInformation.of(Stop.getClass.asInstanceOf[Class[Stop.type]])))
      if (hasScalaTypes) order = state.getState(new ValueStateDescriptor("order", createTypeInformation[Order]))
    }

    override def processElement(number: Long, context: KeyedProcessFunction[String, Long, Long]#Context, out: Collector[Long]): Unit = {
      val key = context.getCurrentKey
      val random = new Random(number * 31 + 7)
      def record(kind: String, value: String): Unit =
        truth.put((s"$name.$kind", key), s"""{"state": "$name.$kind", "key": "$key", "value": $value}""")
      val first = event(random)
      one.update(first)
      record("one", shown(first))
      val events = List.fill(random.nextInt(4) + 1)(event(random))
      events.foreach(all.add)
      record("all", events.map(shown).mkString("[", ", ", "]"))
      val entries = (0 to random.nextInt(3)).map(place => s"m$place" -> event(random))
      entries.foreach { case (place, each) => map.put(place, each) }
      record("map", entries.map { case (place, each) => s"""["$place", ${shown(each)}]""" }.mkString("[", ", ", "]"))
      val clicked = click(random)
      ofClass.update(clicked)
      record("click", shown(clicked))
      stop.update(Stop)
      record("stop", shown(Stop))
      if (hasScalaTypes) {
        val ordered = Order(number, some(random, 3, line(random)), BigDecimal(random.nextInt, 2))
        order.update(ordered)
        record("order", Seq[Any](ordered.id, ordered.lines, ordered.total, ordered.note, ordered.price).map(shown).mkString("[", ", ", "]"))
      }
      seen.incrementAndGet()
    }
  }

  def main(arguments: Array[String]): Unit = {
    val (backend, folder, count) = (arguments(0), Path.of(arguments(1)).toAbsolutePath, arguments(2).toLong)
    val options = new Configuration
    Map("state.backend.type" -> backend, "execution.checkpointing.dir" -> s"file://$folder/checkpoints", "rest.port" -> "0",
      "taskmanager.memory.managed.size" -> "64mb").foreach { case (name, value) => options.setString(name, value) }
    val environment = StreamExecutionEnvironment.getExecutionEnvironment(options)
    environment.setParallelism(1)
    environment.setMaxParallelism(2)
    for ((name, hasScalaTypes) <- Seq("scala" -> true, "java" -> false)) {
      environment
        .addSource(new Numbers(count), createTypeInformation[Long])
        .keyBy((number: Long) => "k" + number, createTypeInformation[String])
        .process(new Keep(name, hasScalaTypes), createTypeInformation[Long])
        .uid(name)
        .name(name)
    }
    val job = environment.executeAsync("events")
    while (seen.get < 2 * count) Thread.sleep(20)
    for (form <- arguments.drop(3)) {
      job.triggerSavepoint(s"file://$folder/${form.toLowerCase}", SavepointFormatType.valueOf(form)).get(100, TimeUnit.SECONDS)
    }
    job.cancel().get()
    Files.write(folder.resolve("truth.jsonl"), truth.toSeq.sortBy(_._1).map(_._2).mkString("", "\n", "\n").getBytes("utf-8"))
    System.exit(0)
  }
}
