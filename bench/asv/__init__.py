"""The history of figures per commit, kept by airspeed velocity: its suite, and the page beside its site.

`make dashboard` (bench/asv/dashboard.py) runs the suite on the last commits and makes the site.
"""
