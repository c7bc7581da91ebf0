"""Drawing ahead gives the numbers of the streams themselves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollsim.simulator.draw_ahead import DrawAhead
from rollsim.simulator.rng import Streams

KEYS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 2), st.integers(0, 70), st.integers(0, 1)), min_size=1, max_size=12
)


@given(asked=st.lists(KEYS, min_size=1, max_size=4), seed=st.integers(0, 3))
def test_inv_11_what_is_drawn_does_not_depend_on_what_was_asked_before(asked, seed):
    ahead, streams = DrawAhead(Streams(seed)), Streams(seed)
    for keys in asked:
        columns = np.array(keys).T
        assert (ahead.normal("a", *columns) == streams.normal("a", *columns)).all()
        assert ahead.normal("b", columns[0][:, None]).shape == (len(keys), 1)
        assert ahead.normal("b", int(columns[0][0])) == streams.normal("b", int(columns[0][0]))
