"""Arithmetic of a pass over sequences, and how they are dealt to data-parallel ranks.

A causal sequence of L tokens takes 2 P L FLOPs in products with weights and 2 layers heads head_dim L**2 in attention:
scores and values are 2 L**2 heads head_dim FLOPs each, half of which the causal mask leaves out (Korthikanti et al.,
arXiv 2205.05198, appendix A, without the mask). P: parameters that work on a token.
"""

import numpy as np

from rollsim.simulator.facts import model_of_profile
from rollsim.simulator.profile_parts import Model


def is_mixture(model: Model) -> bool:
    """Whether it is a mixture of experts; a model that the catalogue does not have counts as dense."""
    shape = model_of_profile(model.hf_name)
    return shape is not None and shape.experts > 0


def token_parameters(model: Model) -> int:
    """Parameters that work on one token: all but the input embedding and the experts that were not chosen."""
    shape = model_of_profile(model.hf_name)
    if shape is None:
        return model.parameters
    idle = shape.layers * 3 * shape.hidden * shape.intermediate * max(0, shape.experts - shape.experts_per_token)
    return shape.parameters - idle - shape.vocab * shape.hidden


def weight_flops(model: Model, tokens: np.ndarray) -> np.ndarray:
    """FLOPs of the products with weights in a forward pass over each sequence of so many tokens."""
    return 2.0 * token_parameters(model) * tokens


def attention_flops(model: Model, tokens: np.ndarray) -> np.ndarray:
    """FLOPs of causal attention in a forward pass over each sequence of so many tokens."""
    return 2.0 * model.layers * model.heads * model.head_dim * np.square(tokens, dtype=float)


def deal(tokens: np.ndarray, ranks: int) -> np.ndarray:
    """Sequences of each rank, shape (rounds, ranks), 0 where a rank has none.

    Sorted by length and dealt forth and back, which balances tokens and their squares as frameworks that sort by
    length do.
    """
    rounds = -(-len(tokens) // ranks)
    dealt = np.zeros(rounds * ranks, dtype=np.int64)
    dealt[: len(tokens)] = np.sort(tokens)[::-1]
    dealt = dealt.reshape(rounds, ranks)
    dealt[1::2] = dealt[1::2, ::-1].copy()
    return dealt
