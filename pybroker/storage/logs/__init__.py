"""The open logs of a broker: `LogManager`, and what is done to logs while they are served."""
