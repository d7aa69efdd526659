package reexpand;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientRequest;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.NetworkClientUtils;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;

/**
 * A connection to the leader of a partition, which returns batches as the broker has them: compressed.
 *
 * It serves one task at a time, and waits in between for the next task.
 */
final class BatchFetcher {

    private static final ConcurrentHashMap WAITING = new ConcurrentHashMap();

    private static final short OLDEST = 4; // from here on batches have format 2
    private static final short LATEST = 12; // later versions name topics by their ids
    private static final int CONSUMER = -1;
    private static final int WAIT_MILLIS = 500;
    private static final long CONNECT_MILLIS = 5000L;
    private static final long PAUSE_MILLIS = 100L;
    private static final long PATIENCE_MILLIS = 120000L;

    private final BoundedPartition partition;
    private final ConsumerConfig config;
    private final NetworkClient client;
    private Node leader; // null if it is not known
    private boolean waits; // for an answer, so that nothing else can be asked

    private BatchFetcher(BoundedPartition partition) {
        this.partition = partition;
        this.config = new ConsumerConfig(partition.options);
        LogContext log = new LogContext();
        Selector selector = new Selector(
            config.getLong(ConsumerConfig.CONNECTIONS_MAX_IDLE_MS_CONFIG).longValue(), new Metrics(), Time.SYSTEM,
            "reexpand", ClientUtils.createChannelBuilder(config, Time.SYSTEM, log), log);
        this.client = new NetworkClient(
            selector, new ManualMetadataUpdater(), "reexpand", 1, PAUSE_MILLIS, PAUSE_MILLIS, Selector.USE_DEFAULT_BUFFER_SIZE,
            Selector.USE_DEFAULT_BUFFER_SIZE, requestMillis(), requestMillis(), requestMillis(), Time.SYSTEM, true,
            new ApiVersions(), log, MetadataRecoveryStrategy.NONE);
    }

    /** Returns the connection that waits for a task of this partition, or a new connection. */
    static BatchFetcher take(BoundedPartition partition) {
        BatchFetcher found = (BatchFetcher) WAITING.remove(partition.place);
        return found == null ? new BatchFetcher(partition) : found;
    }

    /** Keeps the connection for the next task. */
    void release() {
        BatchFetcher other = waits ? this : (BatchFetcher) WAITING.put(partition.place, this);
        if (other != null) {
            other.client.close();
        }
    }

    /** Returns batches from an offset on; the first batch may begin before it. */
    FetchResponseData.PartitionData fetch(long offset) throws IOException {
        long end = Time.SYSTEM.milliseconds() + PATIENCE_MILLIS;
        while (true) {
            String problem;
            try {
                FetchResponseData.PartitionData answer = ask(offset);
                Errors error = Errors.forCode(answer.errorCode());
                if (error == Errors.NONE && FetchResponse.recordsSize(answer) > 0) {
                    return answer;
                }
                if (error == Errors.OFFSET_OUT_OF_RANGE) {
                    throw new IllegalStateException(partition.place + " has no offset " + offset + " any more");
                }
                if (error != Errors.NONE) {
                    leader = null;
                }
                problem = error.message();
            } catch (IOException error) {
                leader = null;
                problem = error.toString();
            }
            if (Time.SYSTEM.milliseconds() > end) {
                throw new IOException(partition.place + " cannot be read from offset " + offset + " on: " + problem);
            }
            pause();
        }
    }

    private FetchResponseData.PartitionData ask(long offset) throws IOException {
        if (leader == null) {
            leader = findLeader();
        }
        if (!NetworkClientUtils.awaitReady(client, leader, Time.SYSTEM, CONNECT_MILLIS)) {
            throw new IOException("no connection to " + leader);
        }
        int bytes = config.getInt(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG).intValue();
        FetchRequest.PartitionData wanted = new FetchRequest.PartitionData(
            Uuid.ZERO_UUID, offset, FetchRequest.INVALID_LOG_START_OFFSET, bytes, Optional.empty());
        FetchRequest.Builder request = new FetchRequest.Builder(
            OLDEST, LATEST, CONSUMER, -1L, WAIT_MILLIS, 1, Collections.singletonMap(partition.place, wanted));
        request.setMaxBytes(bytes);
        request.isolationLevel(
            partition.readsCommitted() ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
        FetchResponse answer = (FetchResponse) answerTo(request).responseBody();
        List topics = answer.data().responses();
        if (topics.isEmpty()) {
            throw new IOException("the broker refuses to answer: " + answer.error());
        }
        FetchResponseData.FetchableTopicResponse topic = (FetchResponseData.FetchableTopicResponse) topics.get(0);
        return (FetchResponseData.PartitionData) topic.partitions().get(0);
    }

    /** Kafka has a method for it, which a thread that is interrupted does not leave. */
    private ClientResponse answerTo(FetchRequest.Builder request) throws IOException {
        ClientRequest sent = client.newClientRequest(leader.idString(), request, Time.SYSTEM.milliseconds(), true);
        waits = true;
        client.send(sent, Time.SYSTEM.milliseconds());
        while (true) {
            Iterator answers = client.poll(PAUSE_MILLIS, Time.SYSTEM.milliseconds()).iterator();
            while (answers.hasNext()) {
                ClientResponse answer = (ClientResponse) answers.next();
                if (answer.requestHeader().correlationId() == sent.correlationId()) {
                    waits = false;
                    if (!answer.hasResponse()) {
                        throw new IOException("the connection to " + leader + " has ended");
                    }
                    return answer;
                }
            }
            if (Thread.currentThread().isInterrupted()) {
                throw new IOException("interrupted");
            }
        }
    }

    private Node findLeader() throws IOException {
        AdminClient admin = AdminClient.create(partition.options);
        try {
            TopicPartition place = partition.place;
            Map topics = (Map) admin.describeTopics(Collections.singleton(place.topic())).allTopicNames().get();
            TopicDescription topic = (TopicDescription) topics.get(place.topic());
            Node found = ((TopicPartitionInfo) topic.partitions().get(place.partition())).leader();
            if (found == null) {
                throw new IOException("the partition has no leader");
            }
            return found;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted");
        } catch (ExecutionException error) {
            throw new IOException("the leader cannot be found: " + error.getCause());
        } finally {
            admin.close(Duration.ZERO);
        }
    }

    private int requestMillis() {
        return config.getInt(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG).intValue();
    }

    private static void pause() throws IOException {
        try {
            Thread.sleep(PAUSE_MILLIS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted");
        }
    }
}
