"""The brokers' and controllers' part of a `MetadataDelta`. Pure; see there."""

from __future__ import annotations

from typing import Any

from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import BrokerRegistration, ClusterImage, ControllerRegistration, Endpoint
from pybroker.protocol import messages as m


class ClusterDelta:
    """Registrations that records made, changed or removed on top of `base`. `changed`: ids of touched brokers."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.changed: set[int] = set()
        self._brokers: dict[int, BrokerRegistration] | None = None
        self._controllers: dict[int, ControllerRegistration] | None = None

    @property
    def is_changed(self) -> bool:
        """Whether any registration was touched."""
        return self._brokers is not None or self._controllers is not None

    def register_broker(self, record: m.RegisterBrokerRecord) -> None:
        """RegisterBrokerRecord: replaces an earlier registration of the same id."""
        cordoned = record.cordoned_log_dirs
        self._put(
            BrokerRegistration(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_features(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                directories=tuple(record.log_dirs),
                cordoned_directories=None if cordoned is None else tuple(cordoned),
            )
        )

    def unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        """UnregisterBrokerRecord."""
        self._current(record.broker_id, record.broker_epoch, "UnregisterBrokerRecord")
        del self._writable_brokers()[record.broker_id]
        self.changed.add(record.broker_id)

    def change_broker(self, record: m.BrokerRegistrationChangeRecord) -> None:
        """BrokerRegistrationChangeRecord: `fenced` 1 fences, -1 unfences, 0 leaves it."""
        old = self._current(record.broker_id, record.broker_epoch, "BrokerRegistrationChangeRecord")
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise MetadataError(
                f"BrokerRegistrationChangeRecord of broker {record.broker_id} with fenced={record.fenced}, "
                f"inControlledShutdown={record.in_controlled_shutdown}: no such change is known"
            )
        cordoned = record.cordoned_log_dirs
        self._put(
            old.replace(
                fenced=old.fenced if record.fenced == 0 else record.fenced == 1,
                in_controlled_shutdown=old.in_controlled_shutdown or record.in_controlled_shutdown == 1,
                directories=tuple(record.log_dirs) or old.directories,
                cordoned_directories=old.cordoned_directories if cordoned is None else tuple(cordoned),
            )
        )

    def set_fenced(self, broker_id: int, broker_epoch: int, fenced: bool) -> None:
        """The older FenceBrokerRecord and UnfenceBrokerRecord."""
        old = self._current(broker_id, broker_epoch, "FenceBrokerRecord" if fenced else "UnfenceBrokerRecord")
        self._put(old.replace(fenced=fenced))

    def register_controller(self, record: m.RegisterControllerRecord) -> None:
        """RegisterControllerRecord: replaces an earlier registration of the same id."""
        self._writable_controllers()[record.controller_id] = ControllerRegistration(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
        )

    def unregister_controller(self, record: m.UnregisterControllerRecord) -> None:
        """UnregisterControllerRecord. MetadataError when the controller is not registered."""
        if self._writable_controllers().pop(record.controller_id, None) is None:
            raise MetadataError(
                f"UnregisterControllerRecord of controller {record.controller_id}, which is not registered"
            )

    def apply(self) -> ClusterImage:
        """The new image; the base itself when nothing changed."""
        if not self.is_changed:
            return self.base
        return ClusterImage(
            self.base.brokers if self._brokers is None else dict(self._brokers),
            self.base.controllers if self._controllers is None else dict(self._controllers),
        )

    def _writable_brokers(self) -> dict[int, BrokerRegistration]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    def _writable_controllers(self) -> dict[int, ControllerRegistration]:
        if self._controllers is None:
            self._controllers = dict(self.base.controllers)
        return self._controllers

    def _put(self, registration: BrokerRegistration) -> None:
        self._writable_brokers()[registration.id] = registration
        self.changed.add(registration.id)

    def _current(self, broker_id: int, broker_epoch: int, record_name: str) -> BrokerRegistration:
        brokers = self.base.brokers if self._brokers is None else self._brokers
        broker = brokers.get(broker_id)
        if broker is None:
            raise MetadataError(f"{record_name} for broker {broker_id}, which is not registered")
        if broker.epoch != broker_epoch:
            raise MetadataError(
                f"{record_name} for broker {broker_id} names broker epoch {broker_epoch}, registered is {broker.epoch}"
            )
        return broker


def _endpoints(endpoints: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in endpoints)


def _features(features: Any) -> tuple[tuple[str, int, int], ...]:
    return tuple((each.name, each.min_supported_version, each.max_supported_version) for each in features)
