"""What it costs to bring new weights to the replicas, and to turn shared GPUs from one role to the other.

sync   = fixed + share * weight bytes / rate of the path     share: 1, less where adapters alone are sent
switch = fixed + train state per GPU / host link             only what is offloaded moves

With relays the trainer is done after the push; each replica pays the pull. `docs/costs.md` shows the published times
that the paths were fitted to and those that they predict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rollsim.simulator.profile_parts import Claim, Grade, Rate, RelayName, Sync, SyncName, SyncPath, Value


def _path(fixed_s: float, bytes_per_s: float, how: str, grades: tuple[Grade, Grade] = ("fitted", "fitted")) -> SyncPath:
    return SyncPath(
        fixed_s=Value(value=fixed_s, grade=grades[0], how=how),
        bytes_per_s=Rate(value=bytes_per_s, grade=grades[1], how=how),
    )


_ASSUMED: tuple[Grade, Grade] = ("assumed", "assumed")
PATHS: Mapping[str, SyncPath] = {
    "colocated": _path(2.88, 20.5e9, "resharded on the same GPUs; 7B with all parameters and 72B with LoRA (verl)"),
    "nccl": _path(3.0, 5.65e9, "full broadcast; 7B and 72B between pools of H100 (verl)"),
    "reshard": _path(0.0, 100e9, "each rank sends what the other needs; 4B and 235B on H100 (NeMo-RL)"),
    "checkpoint_engine": _path(1.2, 93e9, "buckets by broadcast; 110B and 235B on 8 H800 (checkpoint-engine)"),
    "p2p": _path(
        1.0,
        18e9,
        "checkpoint engine inside a trainer; rate to one sync of 30B-A3B (verl, H20), the fixed second assumed",
        ("assumed", "fitted"),
    ),
    "delta": _path(3.86, 28e9, "changed elements alone; 7B and 32B dense on H100 (verl)"),
    "disk": _path(2.0, 2e9, "written to and read from a shared file system", _ASSUMED),
    "relay_push": _path(0.5, 20e9, "trainer to the first relay", _ASSUMED),
    "relay_pull": _path(0.5, 50e9, "relay in host memory to its replica, each GPU its shard", _ASSUMED),
}
SWITCH_FIXED_S = Value(value=1.0, grade="assumed", how="putting an engine to sleep, or waking it")
HOST_BYTES_PER_S = Rate(value=25e9, grade="assumed", how="what PCIe 4 x16 delivers one way")


def path(
    name: SyncName | RelayName, section: Sync, fixed_s: float | None = None, bytes_per_s: float | None = None
) -> SyncPath:
    """Return the path of that name: of the profile's section, else the default; what is stated wins over both."""
    found = (section.paths or {}).get(name, PATHS[name])
    return SyncPath(
        fixed_s=found.fixed_s if fixed_s is None else Value.stated(fixed_s),
        bytes_per_s=found.bytes_per_s if bytes_per_s is None else Rate.stated(bytes_per_s),
    )


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
    switch_fixed_s : Value
        Waking or putting to sleep an engine [s].
    host_bytes_per_s : Rate
        Rate between a GPU and the host.
    """

    path: SyncPath
    weight_bytes: float
    replica_gpus: int = 1
    offloaded_bytes: float = 0.0
    switch_fixed_s: Value = SWITCH_FIXED_S
    host_bytes_per_s: Rate = HOST_BYTES_PER_S
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
        return self.switch_fixed_s.value + self.offloaded_bytes / self.host_bytes_per_s.value

    def claims(self, name: str, *, relayed: bool, shared: bool) -> Iterator[Claim]:
        """Grade of each number that a run uses.

        Parameters
        ----------
        name : str
            Of the path.
        relayed, shared : bool
            Whether weights go over relays; whether GPUs change roles.
        """
        used = {"relay_push": self.push, "relay_pull": self.pull} if relayed else {name: self.path}
        for key, path in used.items():
            yield path.fixed_s.claim(f"weight sync {key}: fixed_s")
            yield path.bytes_per_s.claim(f"weight sync {key}: bytes_per_s")
        if shared:
            yield self.switch_fixed_s.claim("switch of roles: fixed_s")
            yield self.host_bytes_per_s.claim("switch of roles: host_bytes_per_s")
