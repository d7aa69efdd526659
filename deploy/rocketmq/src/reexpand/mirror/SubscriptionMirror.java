package reexpand.mirror;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/**
 * Copies the lite subscriptions that a broker accepts to reexpand's input in Kafka.
 *
 * <p>RocketMQ 5.5 finds it on its class path. It never delays or refuses a request: what Kafka does not take is left
 * out, and comes with the next sync of the client, 30 s later. Settings are system properties: {@code
 * reexpand.mirror.bootstrap.servers}, without which it does nothing, {@code reexpand.mirror.topic}, {@code
 * reexpand.mirror.options}, a file of further options of the Kafka producer, and {@code reexpand.mirror.exclude.groups}.
 *
 * <p>Clients with patterns write their own requests to Kafka, and ask RocketMQ for names that the job found for them. A
 * copy of those would replace the patterns. So groups of such clients are left out, and every WildcardLiteConsumer,
 * which is known by its client id.
 */
public final class SubscriptionMirror implements RPCHook {
  private static final String PREFIX = "reexpand.mirror.";
  private static final int MAX_BODIES = 10_000;

  /** End of the client ids of WildcardLiteConsumer. */
  private static final String PATTERN_CLIENT = "@reexpand";

  private final String topic = System.getProperty(PREFIX + "topic", "lite-subscription-events");
  private final Set<String> excludedGroups = names(System.getProperty(PREFIX + "exclude.groups", ""));
  private final Producer<byte[], byte[]> producer = producer();
  private final BlockingQueue<byte[]> bodies = new ArrayBlockingQueue<>(MAX_BODIES);
  private volatile boolean failing;

  /** Starts the thread that writes to Kafka, where Kafka is given. */
  public SubscriptionMirror() {
    if (producer != null) {
      Thread thread = new Thread(this::run, "reexpand-mirror");
      thread.setDaemon(true);
      thread.start();
    }
  }

  @Override
  public void doBeforeRequest(String address, RemotingCommand request) {}

  @Override
  public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
    if (producer == null
        || request.getCode() != RequestCode.LITE_SUBSCRIPTION_CTL
        || request.getBody() == null
        || (response != null && response.getCode() != ResponseCode.SUCCESS)) {
      return;
    }
    if (!bodies.offer(request.getBody())) {
      tell(new IllegalStateException("more than " + MAX_BODIES + " requests wait"));
    }
  }

  private void run() {
    while (true) {
      try {
        mirror(bodies.take());
      } catch (RuntimeException error) {
        tell(error);
      } catch (InterruptedException error) {
        return;
      }
    }
  }

  /** Writes each entry as a record of its own, under its group: so those of a group stay in order. */
  private void mirror(byte[] body) {
    JSONArray entries = JSON.parseObject(body).getJSONArray("subscriptionSet");
    if (entries == null) {
      return;
    }
    for (int index = 0; index < entries.size(); index++) {
      JSONObject entry = entries.getJSONObject(index);
      if (entry == null || !isMirrored(entry)) {
        continue;
      }
      String group = entry.getString("group");
      byte[] value = translated(entry).toJSONString().getBytes(StandardCharsets.UTF_8);
      producer.send(
          new ProducerRecord<>(topic, group.getBytes(StandardCharsets.UTF_8), value),
          (place, error) -> tell(error));
    }
  }

  private boolean isMirrored(JSONObject entry) {
    String client = entry.getString("clientId");
    String group = entry.getString("group");
    if (isBlank(client) || isBlank(group) || isBlank(entry.getString("topic"))) {
      return false; // RocketMQ skips it, and to the job a COMPLETE_REMOVE without a topic would mean all parents
    }
    return !client.endsWith(PATTERN_CLIENT) && !excludedGroups.contains(group);
  }

  /** Says in the job's terms what the entry means to RocketMQ. */
  private static JSONObject translated(JSONObject entry) {
    entry.remove("version"); // RocketMQ ignores it, and the job would not
    String action = entry.getString("action");
    if (action != null) {
      entry.put("action", action.toUpperCase(Locale.ROOT));
    }
    if (entry.get("liteTopicSet") == null) {
      entry.put("liteTopicSet", new JSONArray());
    }
    return entry;
  }

  private static boolean isBlank(String text) {
    return text == null || text.isBlank();
  }

  private static Set<String> names(String list) {
    Set<String> found = new HashSet<>();
    Arrays.stream(list.split(",")).map(String::strip).filter(name -> !name.isEmpty()).forEach(found::add);
    return found;
  }

  /** Logs the first failure of a row of them, and the end of the row. */
  private void tell(Exception error) {
    boolean former = failing;
    failing = error != null;
    if (failing && !former) {
      System.err.println("reexpand: lite subscriptions are not mirrored: " + error);
    } else if (former && !failing) {
      System.err.println("reexpand: lite subscriptions are mirrored again");
    }
  }

  private static Producer<byte[], byte[]> producer() {
    String servers = System.getProperty(PREFIX + "bootstrap.servers", "");
    if (servers.isEmpty()) {
      return null;
    }
    Properties options = new Properties();
    String file = System.getProperty(PREFIX + "options", "");
    if (!file.isEmpty()) {
      try (Reader reader = new FileReader(file, StandardCharsets.UTF_8)) {
        options.load(reader);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    options.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
    options.put(ProducerConfig.CLIENT_ID_CONFIG, "reexpand-mirror");
    options.put(ProducerConfig.ACKS_CONFIG, "all");
    // A broker of RocketMQ keeps little for Kafka.
    options.put(ProducerConfig.BUFFER_MEMORY_CONFIG, "8388608");
    // The producer looks for its classes by the loader of the thread, which may be none of ours.
    Thread thread = Thread.currentThread();
    ClassLoader former = thread.getContextClassLoader();
    thread.setContextClassLoader(KafkaProducer.class.getClassLoader());
    try {
      return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    } finally {
      thread.setContextClassLoader(former);
    }
  }
}
