"""Coordinators: state machines whose state lives in an internal topic, and the runtime that all of them share."""
