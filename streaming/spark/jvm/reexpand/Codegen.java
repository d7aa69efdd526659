package reexpand;

import org.apache.spark.sql.internal.SQLConf;

/**
 * Choice of a query's projections: interpreted in small micro-batches, compiled in large ones.
 *
 * To find the class of a compiled projection in Spark's cache, each task first writes its Java source: 13 ms of CPU
 * time in a micro-batch. Interpreted projections take 2.5 µs more per record.
 */
final class Codegen {

    private static final String OPTION = "spark.sql.codegen.factoryMode";
    private static final long ENOUGH_RECORDS = 5000L;

    private final SQLConf options;
    private boolean isCompiled;

    /** @param options options of a query's session, which interprets projections so far */
    Codegen(SQLConf options) {
        this.options = options;
    }

    /** Chooses for the next micro-batch, which is likely to be as large as the last one. */
    void choose(long records) {
        if (isCompiled != (records >= ENOUGH_RECORDS)) {
            isCompiled = !isCompiled;
            options.setConfString(OPTION, isCompiled ? "FALLBACK" : "NO_CODEGEN");
        }
    }
}
