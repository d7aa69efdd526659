"""Subscriptions: the interests of clients, the policies of groups, the subscribers of a topic."""
