"""What it costs to bring new weights to the replicas, and to turn shared GPUs from one role to the other.

sync   = fixed + weight bytes / rate of the path
switch = fixed + train state per GPU / host link        only what is offloaded moves

With relays the trainer is done after the push; each replica pays the pull. `docs/costs.md` shows the published times
that the paths were fitted to and those that they predict.
"""

from dataclasses import dataclass

from rollsim.simulator.profile_parts import Grade


@dataclass(frozen=True)
class Path:
    """A way for weights: seconds that do not depend on the size, and bytes/s of one copy; with its grade."""

    fixed_s: float
    bytes_per_s: float
    grade: Grade
    how: str

    def seconds(self, weight_bytes: float) -> float:
        """Time of one copy of the weights [s]."""
        return self.fixed_s + weight_bytes / self.bytes_per_s


_VERL = "verl's published syncs between H100 pools"

PATHS = {
    "colocated": Path(0.5, 100e9, "assumed", "gathered and resharded over NVLink on the same GPUs"),
    "nccl": Path(3.0, 5.65e9, "fitted", f"full broadcast; fitted to 2 of {_VERL}, 7B and 72B dense"),
    "delta": Path(3.86, 28e9, "fitted", f"changed elements alone; fitted to 2 of {_VERL}, 7B and 32B dense"),
    "p2p": Path(
        1.0, 18e9, "fitted", "checkpoint engine, each rank to each; rate fitted to one sync of 30B (verl, H20)"
    ),
    "disk": Path(2.0, 2e9, "assumed", "written to and read from a shared file system"),
}
RELAY_PUSH = Path(0.5, 20e9, "assumed", "trainer to the first relay")
RELAY_PULL = Path(0.5, 50e9, "assumed", "relay in host memory to its replica, each GPU its shard")


@dataclass(frozen=True)
class SyncCost:
    """Seconds of a weight sync and of a role switch.

    Attributes
    ----------
    path : Path
    weight_bytes : float
        One copy of the weights, as the replicas hold them.
    replica_gpus : int
        GPUs of a replica; each pulls its shard.
    offloaded_bytes : float
        Train state that each shared GPU moves to the host and back.
    switch_fixed_s : float
        Waking or putting to sleep an engine [s].
    host_bytes_per_s : float
        Rate between a GPU and the host.
    """

    path: Path
    weight_bytes: float
    replica_gpus: int = 1
    offloaded_bytes: float = 0.0
    switch_fixed_s: float = 1.0
    host_bytes_per_s: float = 25e9

    @property
    def sync_s(self) -> float:
        """Seconds of a weight sync."""
        return self.path.seconds(self.weight_bytes)

    @property
    def push_s(self) -> float:
        """Seconds until the relays have the weights."""
        return RELAY_PUSH.seconds(self.weight_bytes)

    @property
    def pull_s(self) -> float:
        """Seconds until a replica has them from its relay."""
        return RELAY_PULL.seconds(self.weight_bytes / self.replica_gpus)

    @property
    def switch_s(self) -> float:
        """Seconds of a switch, either way."""
        return self.switch_fixed_s + self.offloaded_bytes / self.host_bytes_per_s
