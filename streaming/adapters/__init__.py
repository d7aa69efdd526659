"""Sources of topic events besides a broker plug-in; see README.md of this folder."""
