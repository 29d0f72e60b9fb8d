"""Tail rings as a log dir sees them: who uses them, which logs they belong to, and what an ended broker left there."""
