"""The built-in policies of each decision point by name."""

from collections.abc import Mapping

from rollsim.policies.admission_backlog import Backlog
from rollsim.policies.admission_concurrency import Concurrency
from rollsim.policies.admission_fixed_batch import FixedBatch
from rollsim.policies.admission_replica_batch import ReplicaBatch
from rollsim.policies.admission_staleness_quota import StalenessQuota
from rollsim.policies.allocation_colocate import Colocate
from rollsim.policies.allocation_static_split import StaticSplit
from rollsim.policies.base import POINTS
from rollsim.policies.bubble_nobody import Nobody
from rollsim.policies.decoding_batch_gated import BatchGated
from rollsim.policies.decoding_plain import Plain
from rollsim.policies.early_stop_never import Never
from rollsim.policies.early_stop_token_cap import TokenCap
from rollsim.policies.migration_none import Stay
from rollsim.policies.migration_repack import Repack
from rollsim.policies.ordering_fcfs import Fcfs
from rollsim.policies.ordering_fresh_first import FreshFirst
from rollsim.policies.prompts_in_order import InOrder as PromptsInOrder
from rollsim.policies.readiness_batch import Batch
from rollsim.policies.readiness_streaming import Streaming
from rollsim.policies.round_end_barrier import Barrier
from rollsim.policies.round_end_first_k import FirstK
from rollsim.policies.routing_even_split import EvenSplit
from rollsim.policies.routing_least_load import LeastLoad
from rollsim.policies.selection_drop_stale import DropStale
from rollsim.policies.selection_drop_zero_variance import DropZeroVariance
from rollsim.policies.selection_in_order import InOrder as SelectionInOrder
from rollsim.policies.tool_wait_hold import Hold
from rollsim.policies.weight_sync_drain import Drain
from rollsim.policies.weight_sync_in_flight import InFlight
from rollsim.policies.weight_sync_relay import Relay
from rollsim.traces.errors import BadInput, Fault, closest

BUILT_IN: Mapping[str, Mapping[str, type]] = {
    "prompts": {"in_order": PromptsInOrder},
    "admission": {
        "fixed_batch": FixedBatch,
        "staleness_quota": StalenessQuota,
        "concurrency": Concurrency,
        "replica_batch": ReplicaBatch,
        "backlog": Backlog,
    },
    "ordering": {"fcfs": Fcfs, "fresh_first": FreshFirst},
    "routing": {"even_split": EvenSplit, "least_load": LeastLoad},
    "migration": {"none": Stay, "repack": Repack},
    "early_stop": {"never": Never, "token_cap": TokenCap},
    "round_end": {"barrier": Barrier, "first_k": FirstK},
    "readiness": {"batch": Batch, "streaming": Streaming},
    "selection": {"drop_stale": DropStale, "drop_zero_variance": DropZeroVariance, "in_order": SelectionInOrder},
    "weight_sync": {"drain": Drain, "in_flight": InFlight, "relay": Relay},
    "allocation": {"colocate": Colocate, "static_split": StaticSplit},
    "decoding": {"plain": Plain, "batch_gated": BatchGated},
    "bubble": {"nobody": Nobody},
    "tool_wait": {"hold": Hold},
}

# Points without a second policy: their Protocol may still change.
UNSTABLE = tuple(point for point in POINTS if len(BUILT_IN[point]) < 2)

# Points where several policies compose (`compose`); the others hold one.
COMPOSED = ("admission", "routing", "selection")


def find(point: str, name: str, file: str, place: str) -> type:
    """Return the class of a built-in policy.

    Raises
    ------
    BadInput
        Naming `place` in `file`, what is allowed there, and the closest name.
    """
    if point not in BUILT_IN:
        raise BadInput(Fault(file, place, point, ", ".join(BUILT_IN), closest(point, BUILT_IN), "no such point"))
    names = BUILT_IN[point]
    if name not in names:
        raise BadInput(Fault(file, place, name, ", ".join(names), closest(name, names), f"no such {point} policy"))
    return names[name]
