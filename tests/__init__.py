"""The tests, and in `harness` what they and the benchmarks share."""
