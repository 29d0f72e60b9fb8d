"""What an operator sees of a running broker: metrics, health, events."""
