"""`python -m tests.harness.class_archive`: have a JVM keep the classes of Apache Kafka, which tests start often;
each start then needs half the time. Takes seconds, once for each version of the JVM and of the jars.

Says nothing where there is no java or no Maven: the tests that need them say so. Fails with `ProcessFailed`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pybroker.cluster.errors import ProcessFailed
from pybroker.cluster.jars import JAVA_OPTIONS, cache_dir, class_archive, fetch
from tests.harness.kafka import KafkaBroker


def make() -> None:
    """Make the archive, unless the one that is there is of this JVM and these jars."""
    made_for = class_archive().with_suffix(".version")
    java = subprocess.run(["java", "-version"], stderr=subprocess.PIPE, text=True, check=True).stderr
    jars = "".join(f"{path.name} {path.stat().st_mtime_ns}\n" for path in sorted(fetch().iterdir()))
    if class_archive().exists() and made_for.exists() and made_for.read_text() == java + jars:
        return
    with tempfile.TemporaryDirectory(dir=cache_dir()) as directory:
        scratch = Path(directory) / "classes.jsa"
        class_archive().unlink(missing_ok=True)
        # It is written when the JVM ends, with what it has loaded until then.
        with KafkaBroker(java_options=(*JAVA_OPTIONS, f"-XX:ArchiveClassesAtExit={scratch}", "-Xlog:cds*=off")):
            pass
        if not scratch.exists():
            raise ProcessFailed("the JVM has written no archive of its classes")
        os.replace(scratch, class_archive())
    made_for.write_text(java + jars)


if __name__ == "__main__":
    if shutil.which("java") is not None and shutil.which("mvn") is not None:
        try:
            make()
        except ProcessFailed as error:
            print(error, file=sys.stderr)
            sys.exit(1)
