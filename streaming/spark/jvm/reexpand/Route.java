package reexpand;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Function that places the entries of a record on keys (parent, shard): `streaming.records.routing.placed` in Java.
 *
 * It takes Kafka topic, value and size of a record. It returns a row for each key, or for each piece of a long payload.
 */
public final class Route implements UDF3 {

    private static final long serialVersionUID = 1L;

    private static final int GROUPS = 0;
    private static final int SUBSCRIPTIONS = 1;
    private static final int TOPICS = 2;

    private static final String COORDINATOR = "";
    private static final int BUCKETS = 16;
    private static final int UNROUTABLE = -1;
    private static final int OVERSIZE = -2;

    private static final int REPLACEMENT = 0xfffd;
    private static final String SEPARATOR = "__";
    private static final String LMQ_PREFIX = "%LMQ%$";
    private static final byte[] SIGN_FIELD = ",\"sign\":\"".getBytes(StandardCharsets.UTF_8);
    private static final int SIGNED_END = SIGN_FIELD.length + 34; // with 32 digits, a quote and a brace

    private final List inputs;
    private final Map shards;
    private final int depth;
    private final int bound;
    private final int signedBound;
    private final int requests;
    private final int nameCharacters;
    private final int pieceBytes;
    private final int beginningBytes;

    /**
     * @param inputs Kafka topics of the streams, in the order of their numbers
     * @param shards number of shards by parent; others have one
     * @param numbers see `streaming.spark.route`
     */
    public Route(List inputs, Map shards, Map numbers) {
        this.inputs = new ArrayList(inputs);
        this.shards = new HashMap(shards);
        this.depth = number(numbers, "depth");
        this.bound = number(numbers, "bound");
        this.signedBound = number(numbers, "signed_bound");
        this.requests = number(numbers, "requests");
        this.nameCharacters = number(numbers, "name_characters");
        this.pieceBytes = number(numbers, "piece_bytes");
        this.beginningBytes = number(numbers, "beginning_bytes");
    }

    /**
     * Returns the column of the rows of records, given their columns.
     *
     * Spark has another `udf` for Scala, which takes any object. Java distinguishes them, Py4J does not.
     */
    public Column rows(Column topic, Column value, Column size, DataType kind) {
        return functions.udf((UDF3) this, kind).apply(new Column[] {topic, value, size});
    }

    public Object call(Object topic, Object value, Object size) {
        byte[] payload = (byte[]) value;
        Routes routes = new Routes(inputs.indexOf(topic), ((Integer) size).intValue());
        boolean isLarge = routes.size > bound;
        if (payload != null && (!isLarge || looksSigned(routes, payload))) {
            try {
                place(routes, payload, text(payload), isLarge);
            } catch (Exception notPlaced) {
                routes.rows.clear(); // invalid JSON or a defect: Python reports the record, and the query continues
            }
        }
        if (routes.rows.isEmpty()) {
            byte[] reported = isLarge ? beginning(routes.size, payload) : payload;
            routes.add(COORDINATOR, isLarge ? OVERSIZE : UNROUTABLE, 0, reported);
        }
        return routes.rows;
    }

    /** Decodes a payload; Java puts a sign of its own in place of bytes that are not UTF-8. */
    private static String text(byte[] payload) throws IOException {
        String text = new String(payload, StandardCharsets.UTF_8);
        if (text.indexOf(REPLACEMENT) >= 0 && !UTF8String.fromBytes(payload).isValid()) {
            throw new IOException("not UTF-8");
        }
        return text;
    }

    private void place(Routes routes, byte[] payload, String text, boolean isLarge) throws IOException {
        RecordFields fields = RecordFields.read(text, routes.stream == SUBSCRIPTIONS, requests);
        if (routes.stream == TOPICS) {
            placeTopic(routes, fields, payload);
        } else if (routes.stream == SUBSCRIPTIONS) {
            placeRequests(routes, fields, text, payload, isLarge);
        } else if (routes.stream == GROUPS) {
            placeGroup(routes, fields, payload);
        } else {
            placeClock(routes, fields, payload);
        }
    }

    private void placeTopic(Routes routes, RecordFields fields, byte[] payload) {
        String parent = fields.parentTopic;
        String topic = fields.liteTopic;
        String name = fields.lmqName;
        if (name != null && name.startsWith(LMQ_PREFIX)) {
            int end = name.indexOf('$', LMQ_PREFIX.length());
            if (end >= 0) {
                parent = parent == null ? name.substring(LMQ_PREFIX.length(), end) : parent;
                topic = topic == null ? name.substring(end + 1) : topic;
            }
        }
        if (parent != null) {
            int count = shardCount(parent);
            int shard = count == 1 ? 0 : (int) (crc32(prefix(topic == null ? "" : topic)) % count);
            routes.add(parent, shard, 0, payload);
        }
    }

    /** Places each request on the coordinator's bucket of its group and on all shards of its parent. */
    private void placeRequests(Routes routes, RecordFields fields, String text, byte[] payload, boolean isLarge) {
        if (fields.setSize == 0) {
            placeRequest(routes, fields.topic, fields.group, 0, payload);
            return;
        }
        // The job writes no sets, so a large one is not the job's own, whatever the end of its record. If a field is
        // repeated, Python reports the record as a whole.
        if (isLarge || fields.setSize > requests || fields.isRepeated) {
            return;
        }
        for (int number = 0; number < fields.set.size(); number++) {
            RecordFields.Request request = (RecordFields.Request) fields.set.get(number);
            byte[] part = text.substring(request.from, request.until).getBytes(StandardCharsets.UTF_8);
            placeRequest(routes, request.topic, request.group, request.position, part);
        }
    }

    private void placeRequest(Routes routes, String parent, String group, int position, byte[] payload) {
        int bucket = bucket(group);
        if (parent == null || isBlank(parent)) {
            // Without a parent, an entry concerns the client alone, and only the coordinator sees it.
            routes.add(COORDINATOR, bucket, 2 * position + 1, payload);
        } else {
            routes.add(COORDINATOR, bucket, 2 * position, payload);
            routes.addToAll(parent, 2 * position, payload);
        }
    }

    private void placeGroup(Routes routes, RecordFields fields, byte[] payload) {
        routes.add(COORDINATOR, bucket(fields.group), 0, payload);
        String bound = fields.bindTopic;
        String parent = bound == null || bound.isEmpty() ? fields.parentTopic : bound;
        if (fields.hasAttributes && parent != null && !parent.isEmpty()) {
            routes.addToAll(parent, 0, payload);
        }
    }

    /** Places a tick on all buckets of the coordinator, an alarm on one, and a wake on its shard. */
    private void placeClock(Routes routes, RecordFields fields, byte[] payload) {
        if (fields.tick != null) {
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                routes.add(COORDINATOR, bucket, bucket > 0 ? 1 : 0, payload);
            }
        } else if (fields.alarm != null && fields.parentTopic != null) {
            routes.add(COORDINATOR, bucket(fields.parentTopic), 0, payload);
        } else if (fields.wake != null && fields.shard != null && fields.parentTopic != null) {
            long shard = fields.shard.longValue();
            if (shard == (int) shard) {
                routes.add(fields.parentTopic, (int) shard, 0, payload);
            }
        }
    }

    /** A value that looks like the job's own goes to Python, which checks the signature before anything else. */
    private boolean looksSigned(Routes routes, byte[] value) {
        int start = value.length - SIGNED_END;
        return (routes.stream == GROUPS || routes.stream == SUBSCRIPTIONS)
            && routes.size <= signedBound
            && start >= 0
            && Arrays.equals(Arrays.copyOfRange(value, start, start + SIGN_FIELD.length), SIGN_FIELD);
    }

    private byte[] beginning(int size, byte[] value) {
        byte[] start = (size + "\n").getBytes(StandardCharsets.UTF_8);
        int more = Math.min(value.length, beginningBytes);
        byte[] joined = Arrays.copyOf(start, start.length + more);
        System.arraycopy(value, 0, joined, start.length, more);
        return joined;
    }

    private String prefix(String topic) {
        int end = -1;
        int from = 0;
        for (int segment = 0; segment < depth; segment++) {
            end = topic.indexOf(SEPARATOR, from);
            if (end < 0) {
                break;
            }
            from = end + SEPARATOR.length();
        }
        return end < 0 ? topic : topic.substring(0, end);
    }

    private int shardCount(String parent) {
        Integer count = (Integer) shards.get(parent);
        return count == null ? 1 : count.intValue();
    }

    private static int bucket(String name) {
        return name == null ? UNROUTABLE : (int) (crc32(name) % BUCKETS);
    }

    private static long crc32(String text) {
        CRC32 hash = new CRC32();
        hash.update(text.getBytes(StandardCharsets.UTF_8));
        return hash.getValue();
    }

    /** Returns whether `str.strip` of Python would leave nothing. */
    private static boolean isBlank(String text) {
        for (int number = 0; number < text.length(); number++) {
            char each = text.charAt(number);
            if (!Character.isWhitespace(each) && !Character.isSpaceChar(each) && each != '\u0085') {
                return false;
            }
        }
        return true;
    }

    private static int number(Map numbers, String name) {
        return ((Number) numbers.get(name)).intValue();
    }

    /** The rows of a record. */
    private final class Routes {

        final int stream;
        final int size;
        final List rows = new ArrayList(2);

        Routes(int stream, int size) {
            this.stream = stream;
            this.size = size;
        }

        void addToAll(String parent, int entry, byte[] payload) {
            add(parent, 0, shardCount(parent) - 1, entry, payload);
        }

        void add(String parent, int shard, int entry, byte[] payload) {
            add(parent, shard, shard, entry, payload);
        }

        private void add(String parent, int shard, int last, int entry, byte[] payload) {
            // The name of a parent is repeated in each piece of a payload, so only names that can be valid are places.
            if (parent.length() > nameCharacters && parent.codePointCount(0, parent.length()) > nameCharacters) {
                return;
            }
            if (size <= pieceBytes || payload == null) {
                rows.add(row(parent, shard, last, entry, payload, 0));
                return;
            }
            int from = 0;
            for (int piece = 1; piece == 1 || from < payload.length; piece++) {
                byte[] part = Arrays.copyOfRange(payload, from, Math.min(from + pieceBytes, payload.length));
                rows.add(row(parent, shard, last, entry, part, piece));
                from += pieceBytes;
            }
        }

        private Row row(String parent, int shard, int last, int entry, byte[] payload, int piece) {
            return RowFactory.create(new Object[] {
                Integer.valueOf(stream),
                parent,
                Integer.valueOf(shard),
                Integer.valueOf(last),
                Integer.valueOf(entry),
                payload,
                Integer.valueOf(piece)
            });
        }
    }
}
