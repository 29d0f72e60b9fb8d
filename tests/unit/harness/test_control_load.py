"""What `ControlLoad` holds a broker to after a cut of the power: nothing that was acknowledged behind it."""

from __future__ import annotations

from tests.harness.crash.control_load import ControlLoad


def test_what_is_acknowledged_behind_a_cut_promises_nothing() -> None:
    load = ControlLoad("127.0.0.1:1", "t", seed=1)

    def acknowledge(value: int) -> None:
        load._keep(lambda: setattr(load._promises.config, "acknowledged", value))

    load._begin()
    acknowledge(1)
    promised = load.promises()
    load._begin()
    acknowledge(2)
    load._begin()  # an operation that is answered when the power is on again
    load.forget_since(promised)
    assert load.promises().config.acknowledged == 1
    acknowledge(3)
    assert load.promises().config.acknowledged == 1
    load._begin()
    acknowledge(4)
    assert load.promises().config.acknowledged == 4
