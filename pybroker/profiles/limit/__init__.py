"""How far a running broker is from what the machine can do: the load (`load`), the least it can cost by what was
measured (`bound`), and carrying it out (`run`). Any broker on this machine that speaks Kafka's protocol will do.
"""
