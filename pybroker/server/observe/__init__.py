"""An operator's view of a running broker: metrics, health, events."""
