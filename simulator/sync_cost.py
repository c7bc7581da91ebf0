"""What it costs to bring new weights to the replicas, and to turn shared GPUs from one role to the other.

sync   = fixed + share * weight bytes / rate of the path     share: 1, less where adapters alone are sent
switch = fixed + train state per GPU / host link             only what is offloaded moves

With relays the trainer is done after the push; each replica pays the pull. `docs/costs.md` shows the published times
that the paths were fitted to and those that they predict.
"""

from dataclasses import dataclass

from rollsim.simulator.profile_parts import Sync, SyncPath, Value


def _path(fixed_s: float, bytes_per_s: float, grade: str, how: str) -> SyncPath:
    return SyncPath.model_validate({"fixed_s": fixed_s, "bytes_per_s": bytes_per_s, "grade": grade, "how": how})


PATHS = {
    "colocated": _path(2.8, 20.3e9, "fitted", "resharded on the same GPUs; fitted to 2 runs of verl, 7B and 72B"),
    "nccl": _path(3.0, 5.65e9, "fitted", "full broadcast; fitted to 2 of verl's syncs between H100 pools, 7B and 72B"),
    "reshard": _path(
        0.0, 100e9, "fitted", "each rank sends what the other needs; fitted to NeMo-RL's 4B and 235B, H100"
    ),
    "checkpoint_engine": _path(
        1.2, 93e9, "fitted", "buckets by broadcast; fitted to 2 of checkpoint-engine's on 8 H800"
    ),
    "p2p": _path(1.0, 18e9, "fitted", "checkpoint engine inside a trainer; rate fitted to one sync of 30B (verl, H20)"),
    "delta": _path(3.86, 28e9, "fitted", "changed elements alone; fitted to 2 of verl's on H100, 7B and 32B dense"),
    "disk": _path(2.0, 2e9, "assumed", "written to and read from a shared file system"),
    "relay_push": _path(0.5, 20e9, "assumed", "trainer to the first relay"),
    "relay_pull": _path(0.5, 50e9, "assumed", "relay in host memory to its replica, each GPU its shard"),
}
SWITCH_FIXED_S = Value(value=1.0, grade="assumed", how="putting an engine to sleep, or waking it")
HOST_BYTES_PER_S = Value(value=25e9, grade="assumed", how="what PCIe 4 x16 delivers one way")


def path(name: str, section: Sync, fixed_s: float | None = None, bytes_per_s: float | None = None) -> SyncPath:
    """Return the path of that name: of the profile's section, else the default; what is stated wins over both."""
    found = (section.paths or {}).get(name, PATHS[name])
    stated = {"fixed_s": fixed_s, "bytes_per_s": bytes_per_s}
    stated = {key: value for key, value in stated.items() if value is not None}
    if not stated:
        return found
    return found.model_copy(update={**stated, "grade": "assumed", "how": f"{', '.join(stated)} stated in the config"})


@dataclass(frozen=True)
class SyncCost:
    """Seconds of a weight sync and of a role switch.

    Attributes
    ----------
    path, push, pull : SyncPath
        To all replicas at once; from the trainer to the relays; from a relay to its replica.
    weight_bytes : float
        What is sent: one copy of the weights, as the replicas hold them, or a share of it.
    replica_gpus : int
        GPUs of a replica; each pulls its shard.
    offloaded_bytes : float
        Train state that each shared GPU moves to the host and back.
    switch_fixed_s : float
        Waking or putting to sleep an engine [s].
    host_bytes_per_s : float
        Rate between a GPU and the host.
    """

    path: SyncPath
    weight_bytes: float
    replica_gpus: int = 1
    offloaded_bytes: float = 0.0
    switch_fixed_s: float = SWITCH_FIXED_S.value
    host_bytes_per_s: float = HOST_BYTES_PER_S.value
    push: SyncPath = PATHS["relay_push"]
    pull: SyncPath = PATHS["relay_pull"]

    @property
    def sync_s(self) -> float:
        """Seconds of a weight sync."""
        return self.path.seconds(self.weight_bytes)

    @property
    def push_s(self) -> float:
        """Seconds until the relays have the weights."""
        return self.push.seconds(self.weight_bytes)

    @property
    def pull_s(self) -> float:
        """Seconds until a replica has them from its relay."""
        return self.pull.seconds(self.weight_bytes / self.replica_gpus)

    @property
    def switch_s(self) -> float:
        """Seconds of a switch, either way."""
        return self.switch_fixed_s + self.offloaded_bytes / self.host_bytes_per_s
