package reexpand;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;

/**
 * The fields of a record by which its entries are placed; null if missing or of another type.
 *
 * The whole text must be JSON, but only these fields are kept. Of a repeated field the last one counts, as in Python.
 */
final class RecordFields {

    private static final JsonFactory JSON = json();
    private static final String[] OF_ATTRIBUTES = {"lite.bind.topic"};
    private static final String[] OF_REQUEST = {"topic", "group"};
    private static final int MOST_LEVELS = 999; // as in `streaming.records.routing`

    String parentTopic;
    String liteTopic;
    String lmqName;
    String topic;
    String group;
    String bindTopic;
    boolean hasAttributes;
    Long tick;
    Long alarm;
    Long wake;
    Long shard;
    /** Number of elements of the set of requests, and those that are placed: the first null for all others. */
    int setSize;
    final List set = new ArrayList();
    /** Whether a field of a record that may have a set is repeated. */
    boolean isRepeated;

    /**
     * Reads a text that is one JSON object.
     *
     * @param hasSet whether it may have a set of requests
     * @param most number of elements of a set that are kept
     * @throws IOException if it is anything else, nests too deep, or has too long a number or name of a field
     */
    static RecordFields read(String text, boolean hasSet, int most) throws IOException {
        JsonParser parser = JSON.createParser(text);
        try {
            RecordFields fields = new RecordFields();
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new IOException("no object");
            }
            fields.read(parser, hasSet, most);
            if (parser.nextToken() != null) {
                throw new IOException("something follows the object");
            }
            return fields;
        } finally {
            parser.close();
        }
    }

    private void read(JsonParser parser, boolean hasSet, int most) throws IOException {
        HashSet names = hasSet ? new HashSet() : null;
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            String name = parser.currentName();
            isRepeated |= hasSet && !names.add(name);
            parser.nextToken();
            if (name.equals("parentTopic")) {
                parentTopic = text(parser);
            } else if (name.equals("liteTopic")) {
                liteTopic = text(parser);
            } else if (name.equals("lmqName")) {
                lmqName = text(parser);
            } else if (name.equals("topic")) {
                topic = text(parser);
            } else if (name.equals("group")) {
                group = text(parser);
            } else if (name.equals("tick")) {
                tick = integer(parser);
            } else if (name.equals("alarm")) {
                alarm = integer(parser);
            } else if (name.equals("wake")) {
                wake = integer(parser);
            } else if (name.equals("shard")) {
                shard = integer(parser);
            } else if (name.equals("attributes")) {
                readAttributes(parser);
            } else if (hasSet && name.equals("subscriptionSet")) {
                readSet(parser, most);
            } else {
                parser.skipChildren();
            }
        }
    }

    private void readAttributes(JsonParser parser) throws IOException {
        hasAttributes = parser.currentToken() == JsonToken.START_OBJECT;
        bindTopic = texts(parser, OF_ATTRIBUTES)[0];
    }

    private void readSet(JsonParser parser, int most) throws IOException {
        setSize = 0;
        set.clear();
        if (parser.currentToken() != JsonToken.START_ARRAY) {
            parser.skipChildren();
            return;
        }
        boolean hasNull = false;
        for (JsonToken token = parser.nextToken(); token != JsonToken.END_ARRAY; token = parser.nextToken()) {
            // A null takes five bytes, and its row some hundred. So the first null represents all.
            boolean isKept = setSize < most && !(hasNull && token == JsonToken.VALUE_NULL);
            hasNull |= token == JsonToken.VALUE_NULL;
            Request request = new Request(parser, setSize++);
            if (isKept) {
                set.add(request);
            }
        }
    }

    /** Reads a value up to its end; returns the texts of some fields if it is an object. */
    private static String[] texts(JsonParser parser, String[] names) throws IOException {
        String[] found = new String[names.length];
        if (parser.currentToken() != JsonToken.START_OBJECT) {
            parser.skipChildren();
            return found;
        }
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            int number = Arrays.asList(names).indexOf(parser.currentName());
            parser.nextToken();
            if (number < 0) {
                parser.skipChildren();
            } else {
                found[number] = text(parser);
            }
        }
        return found;
    }

    private static String text(JsonParser parser) throws IOException {
        if (parser.currentToken() == JsonToken.VALUE_STRING) {
            return parser.getText();
        }
        parser.skipChildren();
        return null;
    }

    private static Long integer(JsonParser parser) throws IOException {
        if (parser.currentToken() == JsonToken.VALUE_NUMBER_INT
            && parser.getNumberType() != JsonParser.NumberType.BIG_INTEGER) {
            return Long.valueOf(parser.getLongValue());
        }
        parser.skipChildren();
        return null;
    }

    private static JsonFactory json() {
        JsonFactory factory = new JsonFactory();
        // Names of fields are not cached, because users choose them.
        factory.configure(JsonFactory.Feature.INTERN_FIELD_NAMES, false);
        factory.configure(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES, false);
        factory.setStreamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(MOST_LEVELS).build());
        return factory;
    }

    /** A request in a set: its position, its place in the text, and the fields by which it is placed. */
    static final class Request {

        final int position;
        final int from;
        final int until;
        final String topic;
        final String group;

        private Request(JsonParser parser, int position) throws IOException {
            this.position = position;
            this.from = (int) parser.currentTokenLocation().getCharOffset();
            String[] found = texts(parser, OF_REQUEST);
            this.topic = found[0];
            this.group = found[1];
            parser.finishToken(); // else the place behind a text is not known yet
            this.until = (int) parser.currentLocation().getCharOffset();
        }
    }
}
