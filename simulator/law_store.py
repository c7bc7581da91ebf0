"""Length laws on disk: the ones that ship with the package, by name, and any other by path."""

from pathlib import Path

from rollsim.simulator.documents import SUFFIXES, read_document
from rollsim.simulator.length_law import SCHEMA_VERSION, LengthLaw
from rollsim.traces.errors import BadInput, Fault, closest

SHIPPED = Path(__file__).parent / "laws"


def list_laws() -> list[str]:
    """Names of the shipped laws, in order."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def load_law(name_or_path: str | Path) -> LengthLaw:
    """Read a law.

    Parameters
    ----------
    name_or_path : str or Path
        Name of a shipped law, or a path: something that ends in .json, .yaml or .yml or holds a path separator.

    Raises
    ------
    BadInput
        Unknown name (with the closest), unreadable file, or every fault of the file with its path in the document.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(SUFFIXES) or "/" in text:
        return read_document(Path(text), LengthLaw, SCHEMA_VERSION)
    names = list_laws()
    if text not in names:
        allowed = f"{', '.join(names)}, or a path to a .json or .yaml file"
        raise BadInput(Fault("length law", "", text, allowed, closest(text, names), "unknown law"))
    return read_document(SHIPPED / f"{text}.json", LengthLaw, SCHEMA_VERSION)
