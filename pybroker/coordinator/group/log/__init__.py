"""Groups as records of `__consumer_offsets`: written, and replayed."""
