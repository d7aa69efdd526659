"""Programs to copy: a dispatcher, and a broker plug-in that reports its topics."""
