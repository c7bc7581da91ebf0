"""What is raised when a world breaks its own rules; not the user's fault."""


class WorldFailed(RuntimeError):  # noqa: N818 - the word the user reads
    """An invariant does not hold, or nothing can ever happen again. The message begins with the invariant's id."""
