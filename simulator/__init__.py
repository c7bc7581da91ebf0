"""The world: profiles and costs, the compiled replica kernel, the loop of rollout and training, and replays.

kernel             The compiled engine; `warm_up` compiles what a kind of work calls of it.
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
config             The config of a run; `overrides` are ``a.b=value`` words over it, `examples` those that ship.
model_faults       What pydantic finds wrong, as faults.
policy_settings    Policies from their settings.
setup              All that a world needs, resolved from a config.
world              The clock, and who is asked when.
rollout            Its rollout side: groups start, live, get rewards, wait in the buffer.
training           Its training side: steps, publishing, switching, validation, checkpoints.
pool               The rollout pool.
trajectories       Every trajectory of a run; `groups` every group; `new_rows` draws what starts.
view               What policies see; `answers` refuses what they must not answer.
leases             GPUs leased one by one, and what their seconds went to.
trainer            The parts of a train step and the account of the train pool.
train_cost         What a train step costs: `train_flops` its arithmetic, `train_rates` its free parameters.
train_memory       Whether it fits a GPU, and what stays there while it generates.
sync_cost          What new weights and a switch of roles cost.
workload           Responses by key: drawn from a length law; `recorded_workload` replays a trace.
workload_source    The workload that a config names.
reward_latency     How long a reward takes.
length_law         A length law as a document; `length_body`, `lengths`, `pass_rates` compute it, `law_store` finds it.
rng                Random streams addressed by key.
documents          JSON and YAML documents, validated.
simulate           One config, run.
replications_report  Several seeds of one config.
split              Every split of the GPUs, run and compared; `split_report` the outcome as text.
world_failed       The world cannot go on.
world_tables       A world that has run, as tables.
segments           Spans of trajectories, from the kernel's logs.
ledger             Every GPU-second of every lease, and the fate of generation.
invariants         What must hold in the tables of any run.
basis              What the answer of a run rests on.
run_document       All that is said of a run, as JSON.
run_report         That document as text.
log_import         An import of a log, from words to a document and a run folder.
log_report         That document as text.
bubble_report      Its part on GPU time.
trust_report       Its part on what is fitted, assumed, extrapolated.
comparison_report  Two runs compared, as JSON and text.
shown              A folder of a run or of replications, as it was printed.
wording            Numbers and bars of all reports.
recording          Recordings of a real engine's steps.
recording_faults   What can be wrong with one; `recording_rules` what each field may hold.
recorded_run       A recorded workload, given to an engine step by step.
stepped            What an engine must offer for that.
stepped_replica    The compiled replica as such an engine.
judge              An engine against a recording.
judge_report       Many recordings, and the outcome as JSON and text.

Imports `rollsim.policies` and `rollsim.traces`.
"""
