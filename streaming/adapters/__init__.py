"""Other sources of topic events than a broker plug-in; see README.md of this folder."""
