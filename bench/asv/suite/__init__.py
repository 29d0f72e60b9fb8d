"""The benchmarks that airspeed velocity runs for each commit.

The suite of this checkout measures old commits, installed in an environment of their own. So a module here imports only
the standard library and the suite at its top, and pybroker in `setup`. Where a commit lacks the feature, `setup` raises
NotImplementedError and the figure is left out for that commit. The load generator is this checkout's too, so that
commits differ in the broker alone.

Environment: PYBROKER_ASV_SECONDS for each load (0.5), PYBROKER_ASV_ROUNDS of all of them (3), PYBROKER_ASV_EVERYTHING=1
for all settings with each other, PYBROKER_ASV_DATA for the directory of the log dirs (the temporary one).
"""
