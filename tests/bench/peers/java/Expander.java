import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Keeps the topics and the subscriptions of each parent, and forwards each change of who receives what.
 *
 * <p>Keys of the stores are names joined by a zero character: parent and topic; parent and group (its value says
 * whether the group is a wildcard group); parent, group and client (its value is the client's last request).
 */
final class Expander extends ContextualProcessor<String, byte[], byte[], byte[]> {
  static final String SUBSCRIPTIONS = "subscriptions";
  static final String TOPICS = "topics";

  private static final String JOIN = "\0";
  private static final byte[] YES = {1};
  private static final byte[] NO = {0};
  private static final StringSerializer STRINGS = new StringSerializer();
  private static final int EVENT_ID_BYTES = 16;

  /** One trie a parent, made of the store when it is asked for and dropped when a subscription changes. */
  private final Map<String, Trie> tries = new HashMap<>();

  private final MessageDigest digest = sha256();
  private KeyValueStore<String, byte[]> subscriptions;
  private KeyValueStore<String, byte[]> topics;
  private Record<String, byte[]> current;
  private String source;

  @Override
  public void init(ProcessorContext<byte[], byte[]> context) {
    super.init(context);
    subscriptions = context.getStateStore(SUBSCRIPTIONS);
    topics = context.getStateStore(TOPICS);
  }

  @Override
  public void process(Record<String, byte[]> record) {
    try {
      current = record;
      JsonNode event = Main.JSON.readTree(record.value());
      if (event.has("event")) {
        source = Main.source(context().recordMetadata().orElseThrow(), 0, record.timestamp());
        topic(event.get("parentTopic").asText(), event.get("liteTopic").asText(), event.get("event").asText());
        return;
      }
      Header origin = record.headers().lastHeader(Main.SOURCE);
      source = new String(origin.value(), UTF_8);
      if (event.has("attributes")) {
        group(record.key(), event.get("group").asText(), event.get("attributes").has("lite.sub.wildcard"));
      } else {
        request(record.key(), event);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Lazy: a topic comes or goes, and the patterns that are there decide. */
  private void topic(String parent, String topic, String event) throws IOException {
    String key = parent + JOIN + topic;
    if (event.equals("CREATED")) {
      if (topics.putIfAbsent(key, YES) == null) {
        for (var receiver : trie(parent).match(topic).entrySet()) {
          emit("ADD", parent, receiver.getKey(), topic, receiver.getValue(), "TOPIC_CREATED");
        }
      }
    } else if (topics.delete(key) != null) {
      for (var receiver : trie(parent).match(topic).entrySet()) {
        emit("REMOVE", parent, receiver.getKey(), topic, receiver.getValue(), "TOPIC_DELETED");
      }
    }
  }

  private void group(String parent, String group, boolean wildcard) throws IOException {
    String key = parent + JOIN + group;
    if (isYes(subscriptions.get(key)) == wildcard) {
      return;
    }
    subscriptions.put(key, wildcard ? YES : NO);
    tries.remove(parent);
    for (KeyValue<String, byte[]> client : under(subscriptions, key)) {
      Trie patterns = trieOf(group, client.key.substring(key.length() + 1), client.value);
      compare(parent, wildcard ? new Trie() : patterns, wildcard ? patterns : new Trie(), "GROUP_CHANGED");
    }
  }

  private void request(String parent, JsonNode request) throws IOException {
    String group = request.get("group").asText();
    String client = request.get("clientId").asText();
    String key = parent + JOIN + group + JOIN + client;
    byte[] former = subscriptions.get(key);
    if (former != null && version(request) != null) {
      Long last = version(Main.JSON.readTree(former));
      if (last != null && version(request) < last) {
        return; // stale
      }
    }
    boolean ends = request.get("action").asText().equals("COMPLETE_REMOVE");
    byte[] next = ends ? null : current.value();
    subscriptions.put(key, next);
    tries.remove(parent);
    if (isYes(subscriptions.get(parent + JOIN + group))) {
      String cause = ends ? "UNSUBSCRIBED" : "SUBSCRIBED";
      compare(parent, trieOf(group, client, former), trieOf(group, client, next), cause);
    }
  }

  /** Eager: a client asks for other topics than before, and the topics that are there decide. */
  private void compare(String parent, Trie before, Trie after, String cause) throws IOException {
    for (KeyValue<String, byte[]> entry : under(topics, parent)) {
      String topic = entry.key.substring(parent.length() + 1);
      var was = before.match(topic);
      var is = after.match(topic);
      if (was.isEmpty()) {
        for (var receiver : is.entrySet()) {
          emit("ADD", parent, receiver.getKey(), topic, receiver.getValue(), cause);
        }
      } else if (is.isEmpty()) {
        for (var receiver : was.entrySet()) {
          emit("REMOVE", parent, receiver.getKey(), topic, receiver.getValue(), cause);
        }
      }
    }
  }

  private Trie trie(String parent) throws IOException {
    Trie known = tries.get(parent);
    if (known != null) {
      return known;
    }
    Trie trie = new Trie();
    for (KeyValue<String, byte[]> entry : under(subscriptions, parent)) {
      String[] names = entry.key.split(JOIN);
      if (names.length == 3 && isYes(subscriptions.get(parent + JOIN + names[1]))) {
        add(trie, names[1], names[2], entry.value);
      }
    }
    tries.put(parent, trie);
    return trie;
  }

  private static Trie trieOf(String group, String client, byte[] request) throws IOException {
    Trie trie = new Trie();
    if (request != null) {
      add(trie, group, client, request);
    }
    return trie;
  }

  private static void add(Trie trie, String group, String client, byte[] bytes) throws IOException {
    JsonNode request = Main.JSON.readTree(bytes);
    List<String> patterns = new ArrayList<>();
    request.get("liteTopicSet").forEach(pattern -> patterns.add(pattern.asText()));
    trie.add(new Trie.Client(group, client, version(request)), patterns);
  }

  private static Long version(JsonNode request) {
    return request.hasNonNull("version") ? request.get("version").asLong() : null;
  }

  private static boolean isYes(byte[] value) {
    return value != null && value[0] == YES[0];
  }

  /** A copy, so that the store can be written and records forwarded meanwhile. */
  private static List<KeyValue<String, byte[]>> under(KeyValueStore<String, byte[]> store, String prefix) {
    List<KeyValue<String, byte[]>> found = new ArrayList<>();
    try (KeyValueIterator<String, byte[]> entries = store.prefixScan(prefix + JOIN, STRINGS)) {
      entries.forEachRemaining(found::add);
    }
    return found;
  }

  /** One ADD, or a REMOVE and the tombstone with which compaction forgets both. */
  private void emit(
      String op, String parent, Trie.Client client, String topic, List<String> patterns, String cause)
      throws IOException {
    byte[] key = Main.JSON.writeValueAsBytes(new String[] {parent, client.group(), client.id(), topic});
    digest.update(op.getBytes(UTF_8));
    digest.update(key);
    digest.update(source.getBytes(UTF_8));
    ByteArrayOutputStream out = new ByteArrayOutputStream(512);
    try (JsonGenerator json = Main.JSON.createGenerator(out)) {
      json.writeStartObject();
      json.writeStringField("op", op);
      json.writeStringField("parentTopic", parent);
      json.writeStringField("group", client.group());
      json.writeStringField("clientId", client.id());
      json.writeStringField("liteTopic", topic);
      json.writeStringField("lmqName", "%LMQ%$" + parent + "$" + topic);
      json.writeArrayFieldStart("patterns");
      for (String pattern : patterns) {
        json.writeString(pattern);
      }
      json.writeEndArray();
      json.writeStringField("cause", cause);
      json.writeObjectField("version", client.version());
      json.writeStringField("eventId", HexFormat.of().formatHex(digest.digest(), 0, EVENT_ID_BYTES));
      json.writeFieldName("source");
      json.writeRawValue(source);
      json.writeEndObject();
    }
    context().forward(new Record<>(key, out.toByteArray(), current.timestamp()));
    if (op.equals("REMOVE")) {
      context().forward(new Record<>(key, null, current.timestamp()));
    }
  }

  private static MessageDigest sha256() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
