"""Compiled continuous batching of one replica: every batch change of vLLM's V1 scheduler, no loop per token.

records   what is known of an engine, a rank, a request …
state     arrays of them, of a replica or many; allocate, grow, clone
lists     running and waiting queues          heap      decoding requests by next event
blocks    KV pool with prefix cache           decode    progress as lines over the decode clock
ends      preempt, finish, take out           schedule  one step, request by request
cost      time of a step and of k steps       jump      k pure decode steps at once
loop      run until a time, an end, idleness  touches   what the world does between steps
steady    one step of a rank that only decodes
calls     what one replica of a pool does       fleet     the arrays of all of them
fleet_touches  what the world does to them      fleet_looks  how they go on in between
snapshot  back from having run ahead            groups    what becomes of groups whose members end
jit       the compiler                        cache     where it keeps what it compiled
"""

from rollsim.simulator.kernel.cache import ENTRY_POINTS, cache_state, compile_notice

__all__ = ["ENTRY_POINTS", "cache_state", "compile_notice"]
