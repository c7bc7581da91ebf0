"""Physical KV blocks of one rank: ids, keys, reference counts and the free list in vLLM's order."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class Block:
    """One physical block; `key` names the content of a full, findable block, `version` the weights that wrote it."""

    id: int
    key: Hashable | None = None
    references: int = 0
    version: int = 0


class BlockPool:
    """The usable blocks of a rank (rules 6 and 7).

    `free` is ordered: allocation takes from the front, which evicts the key of what it takes. `copies` lists the blocks
    of a key in the order of their registration; a lookup returns the first one still present.
    """

    def __init__(self, num_blocks: int, *, caching: bool) -> None:
        self.caching = caching
        self.free: OrderedDict[int, Block] = OrderedDict((i, Block(i)) for i in range(num_blocks))
        self.copies: dict[Hashable, list[Block]] = {}
        self.num_blocks = num_blocks
        self.version = 0

    @property
    def num_used(self) -> int:
        """Blocks outside the free list; a block shared by several requests counts once."""
        return self.num_blocks - len(self.free)

    def lookup(self, keys: Sequence[Hashable]) -> list[Block]:
        """Blocks of the longest run of cached keys from the start. Changes nothing."""
        hits: list[Block] = []
        for key in keys:
            if not self.copies.get(key):
                break
            hits.append(self.copies[key][0])
        return hits

    def touch(self, hits: Sequence[Block]) -> None:
        """Take one reference to each hit block; one that was free leaves the free list."""
        for block in hits:
            if block.references == 0:
                del self.free[block.id]
            block.references += 1

    def allocate(self, count: int) -> list[Block]:
        """Take `count` blocks from the front of the free list, evicting what they held."""
        taken = []
        for _ in range(count):
            _, block = self.free.popitem(last=False)
            self._forget(block)
            block.references = 1
            block.version = self.version
            taken.append(block)
        return taken

    def register(self, block: Block, key: Hashable) -> None:
        """Make a full block findable under the key of its content, beside copies that may exist."""
        if self.caching:
            block.key = key
            self.copies.setdefault(key, []).append(block)

    def release(self, blocks: Sequence[Block]) -> None:
        """Drop one reference to each block, last block first: keyed ones to the back of the list, others in front."""
        for block in reversed(blocks):
            block.references -= 1
            if block.references == 0:
                self.free[block.id] = block
                if block.key is None:
                    self.free.move_to_end(block.id, last=False)

    def reset(self) -> None:
        """Empty the prefix cache. Every block must be free."""
        assert self.num_used == 0, "prefix cache reset while blocks are in use"
        for block in self.free.values():
            self._forget(block)

    def _forget(self, block: Block) -> None:
        if block.key is not None:
            copies = self.copies[block.key]
            copies.remove(block)
            if not copies:
                del self.copies[block.key]
            block.key = None
