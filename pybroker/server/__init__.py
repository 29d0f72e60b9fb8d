"""The broker around the data plane: dispatch of requests that Python answers, and their handlers."""
