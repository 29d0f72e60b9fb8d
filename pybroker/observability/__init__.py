"""How the broker is watched: its log lines."""
