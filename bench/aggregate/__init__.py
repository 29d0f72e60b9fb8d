"""Results of all machines in one pool: a PySpark job over a topic and files. docs/benchmarks.md is its manual."""
