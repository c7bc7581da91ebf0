"""What an importer is: the files that it knows, what reads them, and what a user can switch on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rollsim.traces.importers.draft import Draft
from rollsim.traces.importers.files import LogFile
from rollsim.traces.importers.imported import Missing

Claims = Callable[[LogFile], str | None]
Files = Mapping[str, Sequence[LogFile]]


@dataclass(frozen=True)
class Wish:
    """Something that a log of this framework can hold, and the setting that makes it do so.

    Parameters
    ----------
    needs
        Table, or ``table.column``, that tells it: it is missing if that is absent or all null.
    what
        What is missing then, for people.
    setting
        The exact setting that provides it.
    """

    needs: str
    what: str
    setting: str

    def missing(self) -> Missing:
        """Return it as something missing."""
        return Missing(self.what, self.setting)


@dataclass(frozen=True)
class Importer:
    """One source of logs.

    Parameters
    ----------
    name
        As given on the command line.
    looks_for
        The files that it knows, in words, for somebody in whose folder there are none.
    claims
        Says which kind of its files one is, or None.
    read
        Reads files by kind into a draft.
    wishes
        What can be switched on.
    """

    name: str
    looks_for: tuple[str, ...]
    claims: Claims
    read: Callable[[Files, Draft], None]
    wishes: tuple[Wish, ...] = ()
