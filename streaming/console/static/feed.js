// Live changes as server-sent events. Browsers reconnect automatically and send the id of the last event.

const listeners = { changes: new Set(), state: new Set(), lost: new Set(), again: new Set() };
let last = null;

const call = (kind, given) => listeners[kind].forEach((act) => act(given));

export const feed = {
  last: () => last,
  on(kind, act) {
    listeners[kind].add(act);
    return () => listeners[kind].delete(act);
  },
  open() {
    const source = new EventSource("api/stream");
    source.addEventListener("changes", (event) => call("changes", JSON.parse(event.data)));
    source.addEventListener("state", (event) => {
      const found = JSON.parse(event.data);
      const again = last !== null && found.ready && !(last.ready && last.run === found.run);
      last = found;
      call("state", found);
      if (again) call("again");
    });
    source.onerror = () => {
      call("lost");
      if (source.readyState === EventSource.CLOSED) setTimeout(() => feed.open(), 5000);
    };
  },
};
