package reexpand;

import java.io.IOException;
import java.net.URL;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;

/**
 * Class loader that hides the extension of Spark's machine learning from a new session.
 *
 * The extension registers functions that the job does not use. Finding their types takes 1.1 s of a start, most of it in
 * Scala's reflection.
 */
public final class WithoutMachineLearning extends ClassLoader {

    private static final String EXTENSIONS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider";
    private static final String HIDDEN = ".*/spark-mllib_[^/]*[.]jar!/" + EXTENSIONS;

    /** @param parent loads the classes, and finds everything else */
    public WithoutMachineLearning(ClassLoader parent) {
        super(parent);
    }

    @Override
    public Enumeration getResources(String name) throws IOException {
        Enumeration found = super.getResources(name);
        if (!EXTENSIONS.equals(name)) {
            return found;
        }
        List kept = new ArrayList();
        while (found.hasMoreElements()) {
            URL each = (URL) found.nextElement();
            if (!each.getPath().matches(HIDDEN)) {
                kept.add(each);
            }
        }
        return Collections.enumeration(kept);
    }
}
