"""The world: profiles and costs, the compiled replica kernel, the replay of request traces and engine recordings.

kernel             The compiled engine.
replica            One engine in the world: touches at any time, looking without a trace.
limits             What vLLM calls its scheduler and cache configuration.
engine_options     Limits from a profile and what the user sets, refused where vLLM refuses it.
costs              The cost of a step as arrays.
step_tables        From a profile's tables to those arrays.
profile            A fitted cost model, where it came from and how wrong it is.
profile_parts      Its parts.
profile_store      Shipped profiles by name, others by path.
profile_report     A profile in words and numbers.
facts              Models and GPUs (catalogue).
memory             KV blocks that fit a GPU.
replay             A request trace on replicas.
replay_run         A replay from names to a JSON document and a run folder.
replay_report      That document as text.
recording          Recordings of a real engine's steps.
recording_faults   What can be wrong with one.
recorded_run       A recorded workload, given to an engine step by step.
stepped            What an engine must offer for that.
stepped_replica    The compiled replica as such an engine.
judge              An engine against a recording.
judge_report       Many recordings, and the outcome as JSON and text.

Imports `rollsim.policies` and `rollsim.traces`.
"""
