"""Pure decisions over read-only views: no SimPy, no clock but the view's, no cost. One policy, one file.

Imports only `rollsim.traces`.

base                       The fourteen decision points as Protocols, their views and answers.
registry                   The built-in policies of each point by name.
compose                    Several policies of one point as one.
prompts_in_order           The data set in order, over and over.
admission_fixed_batch      Whole batches, `ahead` of the trainer.
admission_staleness_quota  What the trainer consumes within eta versions.
admission_replica_batch    A batch for each empty replica.
admission_backlog          A cap on what is buffered.
admission_concurrency      A cap on trajectories under way.
bubble_nobody              What has nothing to do stays idle.
decoding_batch_gated       Speculation where the batch is small.
decoding_plain             One token a step.
early_stop_never           Trajectories run to their own end.
early_stop_token_cap       A cap on tokens, looked at from time to time.
migration_none             Nothing moves.
migration_repack           The tails of two replicas on one.
ordering_fcfs              Older groups first.
ordering_fresh_first       New trajectories before interrupted ones.
routing_even_split         Equal contiguous parts, up front.
routing_least_load         Where the fewest are.
round_end_barrier          A round ends when all have ended.
round_end_first_k          A round closes when it has enough: carry, drop or keep the rest.
readiness_batch            The trainer waits for a whole batch.
readiness_streaming        Micro-batches stream into the trainer.
selection_drop_stale       What is above eta is dropped.
selection_drop_zero_variance  Groups without a signal are replaced.
selection_in_order         Nobody is overtaken.
tool_wait_hold             KV stays while a tool works.
weight_sync_drain          Swap when nothing runs.
weight_sync_in_flight      Swap under running trajectories.
weight_sync_relay          Each replica pulls when it is empty.
allocation_colocate        All GPUs in both roles by turns.
allocation_static_split    Some generate, the others train.
"""
