"""What a broker imports before it serves: nothing that only other configurations need, and frozen classes at the price
of `Value`."""

from __future__ import annotations

import json
import subprocess
import sys

#: These say more of their fields than a `Value` can.
DATA_CLASSES = {"BrokerConfig", "ConfigKey", "Profile", "Proposal", "TopicConfig"}
LISTING = """
import json, sys
import pybroker.cli.commands.serve, pybroker.server.daemon, pybroker.service.supervision
from pybroker.server.registry import load_apis
load_apis()
frozen = {
    each.__name__
    for module in list(sys.modules.values())
    for each in vars(module).values()
    if isinstance(each, type) and getattr(vars(each).get("__dataclass_params__"), "frozen", False)
}
json.dump({"modules": sorted(sys.modules), "frozen": sorted(frozen)}, sys.stdout)
"""


def test_a_start_imports_what_it_needs_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert "pybroker.server.daemon" in found["modules"]
    packages = {".".join(name.split(".")[:2]) for name in found["modules"] if name.startswith("pybroker.")}
    assert not packages & {"pybroker.quorum", "pybroker.client", "pybroker.doctor", "pybroker.testing"}
    assert set(found["frozen"]) <= DATA_CLASSES
