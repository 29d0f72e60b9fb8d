"""Producers of one kind, groups of three of every other kind, members that join and leave: every record exactly once.

Phases: two members per group read what was produced before them (or one, when the client needs the other to join
later); a third joins while more is produced; the first leaves (cleanly, by SIGTERM) while the rest is produced. Then
each group must have printed every record once, each member must have had its share, and the checksum over the values
must be that of what was sent.
Can fail: `AssertionError` naming the client and the records; `ProcessFailed` when a client ends by itself.
"""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.harness.clients.driver import Client, Consumed, Variant
from tests.harness.process import ChildProcess, ProcessFailed

PARTITION_COUNT = 6
MEMBER_COUNT = 3
_WAIT_SECONDS = 120.0
_STOP_SECONDS = 60.0
#: Of what librdkafka says when asked to, the subjects that tell where a member began to read, and why there.
_TOLD = "ASSIGN|COMMIT|CONSUMER|FETCHERR|LEAVE|OFFFETCH|OFFREQ|OFFSET|OFFSETFETCH|OFFSETVALID|REBALANCE|SEEK|VALIDATE"
_TELLING = re.compile(rf"%[0-6]\||%7\|[0-9.]+\|({_TOLD})\|")
_ERROR_BYTES = 2_000
_TOLD_LINES = 200


def checksum(values: Iterable[bytes]) -> str:
    """One digest for a multiset of values, whatever their order."""
    return hashlib.sha256(b"\n".join(sorted(values))).hexdigest()


def _wait(what: Callable[[], str | None], timeout_seconds: float = _WAIT_SECONDS) -> None:
    """Wait until `what()` is None; otherwise fail with what it said last."""
    deadline = time.monotonic() + timeout_seconds
    while (missing := what()) is not None:
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_seconds} s: {missing}")
        time.sleep(0.1)


class Group:
    """A consumer group of one kind of client; its members' output is in `work_dir`."""

    def __init__(self, client: Client, bootstrap: str, topic: str, work_dir: Path) -> None:
        """No member yet."""
        self.client = client
        self.group_id = f"{topic}-{client.name}"
        self._bootstrap, self._topic, self._work_dir = bootstrap, topic, work_dir
        self._members: list[ChildProcess] = []

    def join(self) -> None:
        """Start one more member."""
        path = self._work_dir / f"{self.group_id}-{len(self._members)}"
        command = self.client.consume_command(self._bootstrap, self._topic, self.group_id)
        errors = path.with_suffix(".err")
        self._members.append(ChildProcess(command, path.with_suffix(".records"), errors_path=errors))

    def leave(self, index: int) -> None:
        """Ask a member to leave; it is waited for only when its client would lose what arrives meanwhile."""
        member = self._members[index]
        if not member.running:
            raise ProcessFailed(f"{self.client.name}: member {index} had ended by itself:\n{self._errors(member)}")
        member.signal(signal.SIGTERM)
        if self.client.drops_on_sigterm:
            member.wait(_STOP_SECONDS)

    def close(self, failed: bool) -> None:
        """End all members; unless something failed before, each must end by SIGTERM in time."""
        for member in self._members:
            if failed:
                member.kill()
            else:
                member.stop(_STOP_SECONDS)

    def records(self) -> list[Consumed]:
        """All that the members printed."""
        return [record for member in self._members for record in self.client.read_back(member.output_path)]

    def missing(self, count: int) -> str | None:
        """None when at least `count` records were printed."""
        seen = len(self.records())
        return None if seen >= count else f"{self.client.name} has {seen} of {count} records\n{self._all_errors()}"

    def verify(self, sent: Sequence[bytes]) -> None:
        """Every record once, and every member some."""
        try:
            self._verify(sent)
        except AssertionError as failure:
            failure.add_note(self.diagnosis())
            raise

    def diagnosis(self) -> str:
        """What each member's client told of assignments, of offsets fetched and committed, and of resets."""
        told = []
        for index, member in enumerate(self._members):
            lines = [line for line in self._error_lines(member) if line[:1] != "%" or _TELLING.match(line)]
            places = Counter(record.partition for record in self.client.read_back(member.output_path))
            told.append(f"{self.group_id}: member {index} printed so many records by partition: {dict(places)}")
            told += lines[-_TOLD_LINES:]
        return "\n".join(told)

    def _verify(self, sent: Sequence[bytes]) -> None:
        records = self.records()
        places = Counter((record.partition, record.offset) for record in records)
        twice = sorted(place for place, count in places.items() if count > 1)
        assert not twice, f"{self.client.name} got {len(twice)} records twice, as (partition, offset): {twice[:10]}"
        values = [record.value for record in records]
        lost, alien = Counter(sent) - Counter(values), Counter(values) - Counter(sent)
        assert not lost, f"{self.client.name} never got {len(lost)} records: {sorted(lost)[:5]}"
        assert not alien, f"{self.client.name} got {len(alien)} records nobody sent: {sorted(alien)[:5]}"
        assert checksum(values) == checksum(sent)
        for index, member in enumerate(self._members):
            assert self.client.read_back(member.output_path), f"{self.client.name}: member {index} got no record"

    def _error_lines(self, member: ChildProcess) -> list[str]:
        return member.output_path.with_suffix(".err").read_text(errors="replace").splitlines()

    def _errors(self, member: ChildProcess) -> str:
        """The end of what it said that is no debugging."""
        lines = [line for line in self._error_lines(member) if not line.startswith("%7|")]
        return "\n".join(lines)[-_ERROR_BYTES:]

    def _all_errors(self) -> str:
        return "\n".join(self._errors(member) for member in self._members)


class Scenario:
    """One topic, its producers' lines, and the groups that read it."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        work_dir: Path,
        records_per_variant: int,
        broker_output: Path | None = None,
    ) -> None:
        """Create the topic. `broker_output`: where the broker writes its log to, which is quoted on failure."""
        self._bootstrap, self._topic, self._work_dir = bootstrap, topic, work_dir
        self._records_per_variant = records_per_variant
        self._broker_output = broker_output
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        self.sent: list[bytes] = []
        for future in self._admin.create_topics([NewTopic(topic, PARTITION_COUNT, -1)]).values():
            future.result(timeout=60)
        # Records sent with acks=0 to a leader that is not there yet are lost, and rightly so.
        _wait(self._leaderless)

    def _leaderless(self) -> str | None:
        """None when every partition has a leader that answers."""
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
        latest = {TopicPartition(self._topic, index): end for index in range(PARTITION_COUNT)}
        for partition, future in self._admin.list_offsets(latest).items():
            try:
                future.result(timeout=60)
            except KafkaException as error:
                return f"{partition} has no leader that answers: {error}"
        return None

    def produce(self, client: Client, variant: Variant) -> None:
        """Send this variant's records, each with a value of its own; keys spread them over all partitions."""
        values = [
            f"{client.name} {variant} {index:06d} {'status=200 region=eu-west-1 ' * (index % 7)}".rstrip().encode()
            for index in range(self._records_per_variant)
        ]
        lines = self._work_dir / f"{self._topic}-{client.name}-{variant}.lines"
        lines.write_bytes(b"".join(b"key-%d:%s\n" % (index, value) for index, value in enumerate(values)))
        command = client.produce_command(self._bootstrap, self._topic, variant, lines)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        errors = f"{client.name} {variant} ended with status {done.returncode}: {done.stdout}{done.stderr}"
        assert done.returncode == 0, errors
        self.sent += values

    def _unsettled(self, groups: Sequence[Group]) -> str | None:
        """None when every group is stable with all members in it."""
        described = self._admin.describe_consumer_groups([group.group_id for group in groups])
        for group_id, future in described.items():
            group = future.result(timeout=60)
            if group.state != ConsumerGroupState.STABLE or len(group.members) != MEMBER_COUNT:
                return f"group {group_id} is {group.state} with {len(group.members)} members"
        return None

    def run(self, sends: Sequence[tuple[Client, Variant]], consumers: Sequence[Client]) -> None:
        """The whole scenario; `sends` is split over the three phases, so it needs at least four entries."""
        assert len(sends) >= 4, "each phase and the join need something to produce"
        third = len(sends) // 3 if len(sends) >= 6 else 1
        before, joining, leaving = sends[:third], sends[third : 2 * third + 1], sends[2 * third + 1 :]
        groups = [Group(client, self._bootstrap, self._topic, self._work_dir) for client in consumers]
        failed = True
        try:
            self._before(groups, before)
            self._join(groups, joining)
            self._leave(groups, leaving)
            failed = False
        finally:
            for group in groups:
                group.close(failed)
        for group in groups:
            try:
                group.verify(self.sent)
            except AssertionError as failure:
                failure.add_note(self._told_by_broker(group.group_id))
                raise

    def _told_by_broker(self, group_id: str) -> str:
        """Lines of the broker's log on the group and on the partitions of the topic, rebalances among them."""
        if self._broker_output is None:
            return "the broker's log is not at hand"
        lines = self._broker_output.read_text(errors="replace").splitlines()
        named = re.compile(rf"\b({re.escape(group_id)}|{re.escape(self._topic)}-\d+|__consumer_offsets-\d+)\b")
        return "\n".join(["the broker's log:", *[line for line in lines if named.search(line)][-_TOLD_LINES:]])

    def _all_read(self, groups: Sequence[Group]) -> None:
        for group in groups:
            _wait(partial(group.missing, len(self.sent)))

    def _before(self, groups: Sequence[Group], sends: Sequence[tuple[Client, Variant]]) -> None:
        for client, variant in sends:
            self.produce(client, variant)
        for group in groups:
            group.join()
            if not group.client.reads_revoked:
                group.join()
        self._all_read(groups)
        for group in groups:
            if group.client.reads_revoked:
                group.join()

    def _join(self, groups: Sequence[Group], sends: Sequence[tuple[Client, Variant]]) -> None:
        for group in groups:
            group.join()
        for client, variant in sends[:-1]:
            self.produce(client, variant)
        _wait(lambda: self._unsettled(groups))
        self.produce(*sends[-1])
        self._all_read(groups)

    def _leave(self, groups: Sequence[Group], sends: Sequence[tuple[Client, Variant]]) -> None:
        for group in groups:
            group.leave(0)
        for client, variant in sends:
            self.produce(client, variant)
        self._all_read(groups)
