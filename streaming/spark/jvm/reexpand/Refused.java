package reexpand;

/** A task must not write: its records are stale. The job looks for the name of this class in Spark's error texts. */
final class Refused extends RuntimeException {

    private static final long serialVersionUID = 1L;

    Refused(String reason) {
        super(reason);
    }
}
