"""The faults of a broker, running or stopped, why each matters, and what to do. Looks, and changes nothing.

`examine` goes through the modules beside it, each with the checks of one subject and at its end a table of them,
`CHECKS`. A check takes the `Subject` and yields findings. docs/doctor.md lists what can be found.
"""
