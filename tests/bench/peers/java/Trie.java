import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Patterns of clients, asked by topic: maps by segment, with {@code *} for one and a last {@code **} for the rest. */
final class Trie {
  /** Who asks, and the version of its last request, or null. */
  record Client(String group, String id, Long version) {}

  private record Entry(Client client, String pattern) {}

  private static final class Node {
    final Map<String, Node> children = new HashMap<>();
    final List<Entry> here = new ArrayList<>();
    final List<Entry> rest = new ArrayList<>();
    Node one;
  }

  private static final String SEPARATOR = "__";
  private final Node root = new Node();
  private final List<Client> everything = new ArrayList<>();

  /** Adds all patterns of a client; one without patterns receives everything. */
  void add(Client client, List<String> patterns) {
    if (patterns.isEmpty()) {
      everything.add(client);
    }
    for (String pattern : patterns) {
      List<String> segments = split(pattern);
      boolean open = segments.get(segments.size() - 1).equals("**");
      Node node = root;
      for (String segment : open ? segments.subList(0, segments.size() - 1) : segments) {
        if (!segment.equals("*")) {
          node = node.children.computeIfAbsent(segment, name -> new Node());
        } else {
          node = node.one == null ? node.one = new Node() : node.one;
        }
      }
      (open ? node.rest : node.here).add(new Entry(client, pattern));
    }
  }

  /** The clients that receive a topic, each with those of its patterns that match, sorted. */
  Map<Client, List<String>> match(String topic) {
    Map<Client, List<String>> found = new HashMap<>();
    walk(root, split(topic), 0, found);
    found.values().forEach(Collections::sort);
    everything.forEach(client -> found.put(client, List.of()));
    return found;
  }

  private static void walk(Node node, List<String> segments, int depth, Map<Client, List<String>> found) {
    if (depth == segments.size()) {
      collect(node.here, found);
      return;
    }
    collect(node.rest, found);
    Node child = node.children.get(segments.get(depth));
    if (child != null) {
      walk(child, segments, depth + 1, found);
    }
    if (node.one != null) {
      walk(node.one, segments, depth + 1, found);
    }
  }

  private static void collect(List<Entry> entries, Map<Client, List<String>> found) {
    for (Entry entry : entries) {
      found.computeIfAbsent(entry.client, client -> new ArrayList<>()).add(entry.pattern);
    }
  }

  private static List<String> split(String text) {
    List<String> segments = new ArrayList<>();
    int start = 0;
    for (int end; (end = text.indexOf(SEPARATOR, start)) >= 0; start = end + SEPARATOR.length()) {
      segments.add(text.substring(start, end));
    }
    segments.add(text.substring(start));
    return segments;
  }
}
