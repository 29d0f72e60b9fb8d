"""Hostile traffic from one seed, and a bystander that measures what other clients feel of it.

`frames` makes the bytes of an attack, `attacker` is a process that plays attacks, `bystander` is a process that
measures, and `turns` compares a broker under attack with the same broker beside processes that only burn CPU.
"""
