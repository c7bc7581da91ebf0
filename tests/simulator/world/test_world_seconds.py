"""Random worlds in whole seconds are second by second those of a plain program that shares no code with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollsim.simulator.trajectories import DISCARDED, NOT_YET, TRAINED
from tests.simulator.world.seconds import Mode, Seconds
from tests.simulator.world.small import SPLIT, setup
from tests.simulator.world.test_world_invariants import outcome

LARGE = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
FATES = {NOT_YET: "undecided", TRAINED: "trained", DISCARDED: "discarded"}
FIELDS = {
    "group": "group",
    "t_submit_s": "submit_s",
    "t_start_s": "start_s",
    "output_tokens": "got",
    "attempts": "attempts",
    "replica": "replica",
    "version_start": "version_start",
    "version_trained": "version_trained",
    "step_trained": "step_trained",
}


def fixed_batch(ahead, over_issue):
    def may_start(s):
        started = len(s.members) - s.dropped
        room = (s.steps_done + ahead + 1) * s.mode.groups + over_issue - started
        if ahead:
            begun = started % s.mode.groups
            room = 0 if s.under_way() and not begun else min(room, s.mode.groups - begun)
        return max(0, room)

    return may_start


def quota(eta):
    def may_start(s):
        started = kept = len(s.members) - s.dropped
        while version_taken(s.mode, started) <= s.version + eta:
            started += 1
        return started - kept

    return may_start


def version_taken(mode, place):
    """The trainer's version when it takes the group of this place in the order of consumption."""
    step, place = divmod(place, mode.groups)
    if not mode.publish_each:
        return step
    if not 0 < mode.micro_groups < mode.groups:
        return step * mode.mini_batches * mode.epochs
    version, held, versions = 0, 0, []
    for first in range(0, mode.groups, mode.micro_groups):
        count = min(mode.micro_groups, mode.groups - first)
        versions += [version] * count
        held += count
        if held >= mode.groups / mode.mini_batches or first + count == mode.groups:
            version, held = version + 1, 0
    return step * version + versions[place]


def capped(rule, trajectories):
    def may_start(s):
        room = (trajectories - len(s.running)) // s.mode.samples
        return min(rule(s), max(room, 0 if s.running else 1))

    return may_start


def by_replica(batches):
    def may_start(s):
        held = len(s.under_way()) + len(s.buffer)
        return min(s.loads().count(0), max(0, batches * s.mode.groups - held))

    return may_start


@st.composite
def modes(draw):
    """Policies as a config has them, the same for the oracle, and lengths."""
    groups, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    length = st.one_of(st.integers(1, 8), st.integers(1, 60))
    row = st.lists(length, min_size=samples, max_size=samples)
    lengths = draw(st.lists(row, min_size=1, max_size=9))
    mode = Mode(lambda _: 0, groups=groups, samples=samples, steps=draw(st.integers(1, 5)))
    mode.reward_s = draw(st.sampled_from([0, 0, 3]))
    mode.least_load = draw(st.booleans())
    mode.shared = draw(st.booleans())
    policies = {"routing": "least_load" if mode.least_load else "even_split"}
    eta = 0 if mode.shared else draw(st.integers(0, 3))
    kind = draw(
        st.sampled_from(["batch", "quota", "round"] if mode.shared else ["batch", "quota", "cap", "round", "relay"])
    )
    if kind == "batch":
        policies["admission"] = {"use": "fixed_batch", "ahead": eta}
        mode.admission = fixed_batch(eta, 0)
    elif kind in ("quota", "cap"):
        policies["admission"] = [{"use": "staleness_quota", "eta": eta}]
        mode.admission = quota(eta)
        if kind == "cap":
            cap = draw(st.integers(1, 8))
            policies["admission"] += [{"use": "concurrency", "trajectories": cap}]
            mode.admission, mode.each_finish = capped(mode.admission, cap), True
    elif kind == "round":
        extra = draw(st.integers(0, 3))
        mode.unfinished = draw(st.sampled_from(["carry", "drop"] if mode.shared else ["carry", "drop", "keep"]))
        policies["admission"] = {"use": "fixed_batch", "over_issue": extra}
        policies["round_end"] = {"use": "first_k", "unfinished": mode.unfinished}
        mode.admission = fixed_batch(0, extra)
    else:
        policies["admission"] = [{"use": "replica_batch", "groups": 1}, {"use": "backlog", "batches": eta + 1}]
        mode.admission, mode.each_finish, mode.how = by_replica(eta + 1), True, "relay"
        policies["weight_sync"] = "relay"
    if not mode.shared:
        policies["allocation"] = SPLIT
        if mode.how != "relay":
            mode.how = draw(st.sampled_from(["drain", "in_flight"]))
            if mode.how == "in_flight":
                policies["weight_sync"] = {"use": "in_flight", "keep_kv": draw(st.booleans())}
        if draw(st.booleans()):
            mode.micro_groups = draw(st.integers(1, 3))
            policies["readiness"] = {"use": "streaming", "micro_groups": mode.micro_groups}
    if not mode.micro_groups:
        mode.mini_batches = draw(st.integers(1, min(3, groups * samples)))
        mode.epochs = draw(st.sampled_from([1, 1, 2]))
        mode.publish_each = not mode.shared and draw(st.booleans())
    selection = []
    if kind != "round" and draw(st.booleans()):
        mode.in_order = True
        selection.append("in_order")
    if draw(st.booleans()):
        mode.drop_above = draw(st.integers(0, 2))
        selection.append({"use": "drop_stale", "eta": mode.drop_above})
    policies["selection"] = selection
    return policies, mode, lengths


@given(drawn=modes())
@settings(max_examples=400, deadline=None)
def test_every_mode_is_second_by_second_the_oracle(drawn):
    policies, mode, lengths = drawn
    made = setup(
        policies,
        lengths,
        gpus=2 if mode.shared else 4,
        steps=mode.steps,
        prompts=mode.groups,
        samples=mode.samples,
        reward_s=float(mode.reward_s),
        train={
            "mini_batches": mode.mini_batches,
            "epochs": mode.epochs,
            "publish": "mini_batch" if mode.publish_each else "step",
        },
        limits=LARGE,
    )
    world, failed = outcome(made)
    if world is None:
        assert failed.startswith(("nothing can happen", "no batch in sight"))
        with pytest.raises(AssertionError, match="still waits"):
            Seconds(mode, lengths).run()
        return
    oracle = Seconds(mode, lengths).run()
    expected = [m for group in oracle.members for m in group]
    rows = world.trajectories.rows
    assert [(s["t0_s"], s["t1_s"], s["published_s"], s["version"]) for s in world.steps] == oracle.steps
    for name, mine in FIELDS.items():
        assert rows[name].tolist() == [getattr(m, mine) for m in expected], name
    assert [FATES[fate] for fate in rows["fate"].tolist()] == [m.fate for m in expected]
    done = [i for i, m in enumerate(expected) if m.got == m.length]
    assert rows["t_end_s"][done].tolist() == [expected[i].end_s for i in done]
    assert rows["version_end"][done].tolist() == [expected[i].version_end for i in done]
