"""Programs to copy: a dispatcher, a broker plug-in that reports its topics, and sample traffic."""
