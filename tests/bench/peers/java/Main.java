import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.Stores;

/** Runs the operator until SIGTERM, with the job's own settings from the environment. */
public final class Main {
  static final ObjectMapper JSON = new ObjectMapper();
  static final String SOURCE = "source";

  private Main() {}

  public static void main(String[] arguments) {
    KafkaStreams streams = new KafkaStreams(topology(), configuration());
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.RUNNING) {
            System.err.println("ready: reading");
          }
        });
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
    streams.start();
  }

  private static Properties configuration() {
    Path folder = Path.of(setting("CHECKPOINT"));
    Properties given = new Properties();
    given.put(StreamsConfig.APPLICATION_ID_CONFIG, folder.getFileName().toString());
    given.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, setting("BOOTSTRAP_SERVERS"));
    given.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
    given.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, setting("GUARANTEE"));
    given.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Integer.parseInt(setting("THREADS")));
    // Its default of 100 ms is for throughput; under load batches fill all the same.
    given.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 0);
    return given;
  }

  /** Topic events are keyed by parent; what a group says and asks for is keyed by group, and brought to its parent. */
  private static Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    for (String store : List.of(Expander.SUBSCRIPTIONS, Expander.TOPICS)) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.String(), Serdes.ByteArray())
              .withCachingDisabled()); // a topic is written once, so there is nothing to save up
    }
    Consumed<String, byte[]> records = Consumed.with(Serdes.String(), Serdes.ByteArray());
    KStream<String, byte[]> subscriptions =
        builder.stream(List.of(setting("GROUP_EVENTS"), setting("SUBSCRIPTION_EVENTS")), records)
            .process(Router::new)
            .repartition(Repartitioned.with(Serdes.String(), Serdes.ByteArray()).withName("by-parent"));
    builder.stream(setting("TOPIC_EVENTS"), records)
        .merge(subscriptions)
        .process(Expander::new, Expander.SUBSCRIPTIONS, Expander.TOPICS)
        .to(setting("UPDATES"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    return builder.build();
  }

  private static String setting(String name) {
    String value = System.getenv("REEXPAND_" + name);
    if (value == null) {
      throw new IllegalArgumentException("REEXPAND_" + name + " is not set");
    }
    return value;
  }

  /** Where an entry of a record comes from, as JSON; names of Kafka topics need no escaping. */
  static String source(RecordMetadata place, int entry, long timestamp) {
    return "{\"topic\":\"" + place.topic() + "\",\"partition\":" + place.partition() + ",\"offset\":" + place.offset()
        + ",\"entry\":" + entry + ",\"timestamp\":" + timestamp + "}";
  }

  /** Keys group events and requests by parent; the new records carry in a header where they come from. */
  private static final class Router extends ContextualProcessor<String, byte[], String, byte[]> {
    @Override
    public void process(Record<String, byte[]> record) {
      try {
        JsonNode body = JSON.readTree(record.value());
        JsonNode entries = body.path("subscriptionSet");
        if (!entries.isArray()) {
          forward(record, body, 0);
        }
        for (int number = 0; number < entries.size(); number++) {
          forward(record, entries.get(number), number);
        }
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    private void forward(Record<String, byte[]> record, JsonNode entry, int number) throws IOException {
      JsonNode parent = entry.has("attributes") ? entry.at("/attributes/lite.bind.topic") : entry.path("topic");
      if (!parent.isTextual()) {
        return; // it cannot be placed
      }
      String source = source(context().recordMetadata().orElseThrow(), number, record.timestamp());
      RecordHeaders headers = new RecordHeaders();
      headers.add(SOURCE, source.getBytes(StandardCharsets.UTF_8));
      context().forward(new Record<>(parent.asText(), JSON.writeValueAsBytes(entry), record.timestamp(), headers));
    }
  }
}
