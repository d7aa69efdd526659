"""State that spans parent topics: group bindings, client leases, alarms."""
