package reexpand;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A task's message to the driver: it has nothing to say. */
final class Done implements WriterCommitMessage {

    private static final long serialVersionUID = 1L;
}
