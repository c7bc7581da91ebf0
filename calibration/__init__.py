"""From measurements to a profile: builds the cost tables that the simulator reads and states how wrong they are.

Map: `build_profiles` puts a profile together from a `step_table`, by `decode_fit` and `prefill_fit` (over batch sizes
`monotone`), with `residuals`, the `bias` of the source and the `provenance` of every part; numbers are `rounding`-ed.

`measure` runs a real engine: the batches of a `sweep` (plain data: `batch`), sized by its `speed`, are run by a
`recorder` and kept in a folder, the `measurement` (`measurement_tables`: its Parquet, `measure_report`: its text).
The engine lives in an `engine_process` that runs an `engine_worker`: a `vllm_driver`, looked into by a `step_tap`
(an `async_tap` under asynchronous scheduling), tells its `engine_facts` and `extra_timings`; `engine_faults` is what
goes wrong. `local_models` makes models without a hub, `arithmetic_rollouts` a trace of a real one.

From there `measured_steps` pairs times with `step_features`, `measured_fit` fits the cost of a step, `measured_profile`
makes a profile of it, and `validation` (`validation_report`: its text) judges one by batches that were held out.

A server that runs already is asked by a `server_client`: `server_measure` has `server_streams` of a batch written down
in a `server_measurement` (`server_metrics`: what it tells of itself, `model_shape`: what its config.json does);
`server_features` are the steps that a client can tell, `server_profile` and `server_validation` go on from there.
`measured` opens, fits and judges measurements of both kinds; `watch` looks on, and `drift` says when a profile no
longer holds.

Where vLLM is not installed, a `torch_driver` runs a `torch_decoder` under the simulator's own scheduler. `train_timing`
and `transfer_timing` time what a device costs besides (`train_fit`, `transfer_fit`; `device_report`: their text), and a
`device_session` does all of it.

From a training log, `logged_steps` and the `logged_lengths` of their batches are simulated in a `logged_world`;
`log_fit` fits factors to them (`log_report`: its text) and `log_profile` puts these on a profile; `log_beside` lays a
log beside its simulation, phase by phase.

`fit_length_law` turns a `length_source` (files of `length_sources/`) into a length law: `length_body_fit` fits the
body, `group_statistics` draws what sources publish about groups. From measured responses `length_fit` makes one: it
compares `length_candidates`, `length_goodness` judges what comes out, `length_extras` are drift and latencies, and
`length_fit_report` is the text.

Imports `rollsim.simulator` and what is below it.
"""
