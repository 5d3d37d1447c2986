import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import scala.collection.concurrent.TrieMap

import org.apache.flink.api.common.functions.OpenContext
import org.apache.flink.api.common.state._
import org.apache.flink.api.scala._
import org.apache.flink.configuration.Configuration
import org.apache.flink.core.execution.SavepointFormatType
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
import org.apache.flink.streaming.api.functions.KeyedProcessFunction
import org.apache.flink.streaming.api.functions.source.SourceFunction
import org.apache.flink.util.Collector

/** Runs a job of the Scala API whose state has numbers of Scala in case classes, and takes its savepoints.
  *
  * Arguments: the backend, the folder, and the forms of savepoints. The truth is printed as JSON: state, key, value.
  */
object SaveScala {
  case class Price(name: String, amount: BigDecimal, count: BigInt, last: Int)

  val seen = new AtomicLong
  val truth: TrieMap[String, String] = TrieMap()

  def shown(price: Price): String = s"""["${price.name}", "${price.amount}", "${price.count}", ${price.last}]"""

  class Numbers(count: Long) extends SourceFunction[Long] {
    @volatile private var running = true
    override def run(context: SourceFunction.SourceContext[Long]): Unit = {
      for (number <- 0L until count) context.getCheckpointLock.synchronized(context.collect(number))
      while (running) Thread.sleep(20)
    }
    override def cancel(): Unit = running = false
  }

  class Keep extends KeyedProcessFunction[String, Long, Long] {
    @transient private var one: ValueState[Price] = _
    @transient private var total: ValueState[BigDecimal] = _
    @transient private var all: ListState[BigInt] = _
    @transient private var map: MapState[BigDecimal, Price] = _

    override def open(context: OpenContext): Unit = {
      val state = getRuntimeContext
      one = state.getState(new ValueStateDescriptor("one", createTypeInformation[Price]))
      total = state.getState(new ValueStateDescriptor("total", createTypeInformation[BigDecimal]))
      all = state.getListState(new ListStateDescriptor("all", createTypeInformation[BigInt]))
      map = state.getMapState(new MapStateDescriptor("map", createTypeInformation[BigDecimal], createTypeInformation[Price]))
    }

    override def processElement(number: Long, context: KeyedProcessFunction[String, Long, Long]#Context, out: Collector[Long]): Unit = {
      val key = context.getCurrentKey
      val amount = BigDecimal(number * 1001 - 3000) / 8
      val price = Price("p" + number, amount, BigInt(number).pow(number.toInt * 5) - 2, number.toInt)
      one.update(price)
      total.update(amount)
      all.add(price.count)
      all.add(BigInt(7))
      map.put(amount, price)
      truth.put(s"""["one", "$key"]""", shown(price))
      truth.put(s"""["total", "$key"]""", s""""$amount"""")
      truth.put(s"""["all", "$key"]""", s"""["${price.count}", "7"]""")
      truth.put(s"""["map", "$key"]""", s"""["$amount", ${shown(price)}]""")
      seen.incrementAndGet()
    }
  }

  def main(arguments: Array[String]): Unit = {
    val (backend, folder, count) = (arguments(0), Path.of(arguments(1)).toAbsolutePath, 9L)
    val options = new Configuration
    Map("state.backend.type" -> backend, "execution.checkpointing.dir" -> s"file://$folder/checkpoints", "rest.port" -> "0",
      "taskmanager.memory.managed.size" -> "64mb").foreach { case (name, value) => options.setString(name, value) }
    val environment = StreamExecutionEnvironment.getExecutionEnvironment(options)
    environment.setParallelism(1)
    environment.setMaxParallelism(2)
    environment
      .addSource(new Numbers(count), createTypeInformation[Long])
      .keyBy((number: Long) => "k" + number, createTypeInformation[String])
      .process(new Keep, createTypeInformation[Long])
      .uid("prices")
      .name("prices")
    val job = environment.executeAsync("prices")
    while (seen.get < count) Thread.sleep(20)
    for (form <- arguments.drop(2)) {
      job.triggerSavepoint(s"file://$folder/${form.toLowerCase}", SavepointFormatType.valueOf(form)).get(100, TimeUnit.SECONDS)
    }
    job.cancel().get()
    Files.write(folder.resolve("truth.json"), truth.toSeq.sorted.map { case (place, value) => s"[$place, $value]" }.mkString("[", ",\n", "]\n").getBytes)
    System.exit(0)
  }
}
