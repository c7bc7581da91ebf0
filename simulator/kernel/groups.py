"""What becomes of groups whose members end: counted off, rewarded, final; many in one compiled call."""

import numpy as np

from rollsim.simulator.kernel.jit import i64, jit
from rollsim.simulator.trajectories import NOT_YET

GROUP = np.dtype(
    [
        ("first", "i8"),
        ("members", "i4"),
        ("live", "i4"),
        ("validation", "?"),
    ],
    align=True,
)
# What is known of a group when its last reward is; `oldest_version` leaves out members that were stopped.
FINAL = np.dtype(
    [("oldest_version", "i8"), ("final_s", "f8"), ("reward_mean", "f8"), ("reward_spread", "f8"), ("tokens", "i8")],
    align=True,
)


@jit
def begin(groups, rows, group, first, sizes, validation, t_s):
    """Fill in new groups from `group` on, whose trajectories follow one another from `first` on, submitted at t_s."""
    for size in sizes:
        new = groups[group]
        new.first, new.members, new.live, new.validation = first, size, size, validation
        for number in range(first, first + size):
            rows[number].group, rows[number].t_submit_s = group, t_s
        first += size
        group += 1


@jit
def count_off(groups, rows, numbers, over):
    """Count off members that have ended, and write the groups that have no live one left into `over`.

    Returns how many members were not validation's, and how many groups are over.
    """
    counted, n = 0, 0
    for number in numbers:
        g = rows[number].group
        groups[g].live -= 1
        if not groups[g].validation:
            counted += 1
        if groups[g].live == 0:
            over[n] = g
            n += 1
    return counted, n


@jit
def rewarded_s(groups, rows, over, final_s):
    """Set when the rewards of groups come that are over; `final_s` gets the last one of each [s]."""
    for k in range(len(over)):
        group = groups[over[k]]
        final_s[k] = -np.inf
        for number in range(group.first, group.first + group.members):
            row = rows[number]
            row.t_final_s = row.t_end_s + row.reward_s
            final_s[k] = max(final_s[k], row.t_final_s)


@jit
def foreseen_s(groups, rows, first, final_s):
    """When each group from `first` on that generates will be final, if its members end when their rows say [s].

    Those that wait for a replica are left out, as is validation. Returns how many there are.
    """
    n = 0
    for g in range(first, len(groups)):
        group = groups[g]
        if group.live <= 0 or group.validation:
            continue
        latest, waits = -np.inf, False
        for number in range(group.first, group.first + group.members):
            row = rows[number]
            latest = max(latest, row.t_end_s + row.reward_s)
            waits = waits or row.request < 0
        if not waits:
            final_s[n] = latest
            n += 1
    return n


@jit
def finals(groups, rows, due, out):
    """Fill in a FINAL for each group that is final."""
    for k in range(len(due)):
        group, final = groups[due[k]], out[k]
        final.oldest_version, final.final_s, final.tokens = i64(1 << 31), -np.inf, 0
        total, least, most = 0.0, np.inf, -np.inf
        for number in range(group.first, group.first + group.members):
            row = rows[number]
            if row.fate == NOT_YET:
                final.oldest_version = min(final.oldest_version, row.version_start)
            final.final_s = max(final.final_s, row.t_final_s)
            final.tokens += row.prompt_tokens + row.output_tokens
            total += row.reward
            least, most = min(least, row.reward), max(most, row.reward)
        final.reward_mean = total / group.members
        # Not a number if one of the rewards is not.
        final.reward_spread = most - least + 0.0 * total


@jit
def oldest_under_way(groups, waiting, first):
    """First group from `first` on that is neither validation's nor over; waiting for rewards is not over."""
    for g in range(first, len(groups)):
        if groups[g].validation:
            continue
        if groups[g].live > 0:
            return g
        for k in range(len(waiting)):
            if waiting[k] == g:
                return g
    return len(groups)
