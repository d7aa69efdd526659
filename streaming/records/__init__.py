"""What is on the wire: input events, updates, and their routing."""
