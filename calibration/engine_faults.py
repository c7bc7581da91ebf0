"""What can go wrong with a real engine that is being measured."""


class EngineFailed(RuntimeError):  # noqa: N818 - the word the user reads
    """The engine could not go on: it crashed, ran out of memory, or was killed. What was measured before is kept."""


class EngineMoved(EngineFailed):
    """The engine's internals are not where they were in the version that is known."""


class EngineUnfit(EngineFailed):
    """The engine refuses what it was asked to load: no such model, no memory for it, options that it does not take."""


# How they are called between processes.
KINDS = {"failed": EngineFailed, "moved": EngineMoved, "unfit": EngineUnfit}
