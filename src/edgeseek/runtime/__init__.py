"""Executes models: the `Backend` protocol and what implements it. Knows nothing of text or scheduling."""
