"""Parts of the broker measured by themselves: single functions in C, group joins, message codecs.

`make bench-micro` times them with pytest-benchmark and writes `build/bench/micro.json`, which `pybroker bench publish`
reads; `crc32c` puts checksums beside those of others, `instructions` counts what `make instructions` holds against a
baseline.
"""
