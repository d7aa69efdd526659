package reexpand;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** The names of a state partition at the broker, and the numbers of the driver and of its query whose task it is. */
final class Fence {

    private static final String CLIENT = "kafka.";

    /** Generation of a driver whose records are written at least once. */
    private static final String NONE = "-1";

    /** Brokers' default maximum, because the transaction lasts as long as the task. */
    private static final String LONGEST_TRANSACTION_MS = "900000";

    final int partition;
    final long generation;
    final String run;
    final String name;
    final TopicPartition markers;
    private final Map options;

    Fence(Map options, int partition) {
        this.options = options;
        this.partition = partition;
        this.generation = Long.parseLong((String) options.getOrDefault("generation", NONE));
        this.run = (String) options.get("run");
        this.name = "reexpand-" + options.get("checkpoint") + "-" + partition;
        this.markers = new TopicPartition((String) options.get("markers"), 0);
    }

    /** Returns whether records are written in transactions. */
    boolean isExact() {
        return generation >= 0;
    }

    HashMap clientOptions() {
        HashMap chosen = new HashMap();
        Iterator entries = options.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            String key = (String) entry.getKey();
            if (key.startsWith(CLIENT)) {
                chosen.put(key.substring(CLIENT.length()), entry.getValue());
            }
        }
        return chosen;
    }

    HashMap producerOptions() {
        HashMap chosen = new HashMap();
        if (isExact()) {
            chosen.put("transaction.timeout.ms", LONGEST_TRANSACTION_MS);
            chosen.putAll(clientOptions());
            chosen.put("transactional.id", name);
            chosen.put("enable.idempotence", "true");
            chosen.put("acks", "all");
        } else {
            chosen.putAll(clientOptions());
        }
        chosen.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        chosen.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return chosen;
    }
}
