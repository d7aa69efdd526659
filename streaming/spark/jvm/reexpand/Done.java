package reexpand;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A task's empty message to the driver. */
final class Done implements WriterCommitMessage {

    private static final long serialVersionUID = 1L;
}
