"""From measurements to a profile: builds the cost tables that the simulator reads and states how wrong they are.

Map: `build_profiles` puts a profile together from a `step_table`, by `decode_fit` and `prefill_fit` (over batch sizes
`monotone`), with `residuals`, the `bias` of the source and the `provenance` of every part; numbers are `rounding`-ed.

`fit_length_law` turns a `length_source` (files of `length_sources/`) into a length law: `length_body_fit` fits the
body, `group_statistics` draws what sources publish about groups.

Imports `rollsim.simulator` and what is below it.
"""
