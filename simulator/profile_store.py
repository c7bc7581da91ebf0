"""Profiles on disk: the ones that ship with the package, by name, and any other by path."""

import json
from pathlib import Path

from pydantic import ValidationError

from rollsim.simulator.model_faults import model_faults
from rollsim.simulator.profile import SCHEMA_VERSION, Profile
from rollsim.traces.errors import BadInput, Fault, closest

SHIPPED = Path(__file__).parent / "profiles"


def list_profiles(containing: str = "") -> list[str]:
    """Names of the shipped profiles in order, all or those that contain a text; `BadInput` if none does."""
    names = sorted(path.stem for path in SHIPPED.glob("*.json"))
    chosen = [name for name in names if containing.lower() in name]
    if not chosen:
        message = "no shipped profile has this in its name"
        raise BadInput(Fault("profiles", "", containing, "part of a name", closest(containing, names), message))
    return chosen


def load_profile(name_or_path: str | Path, given_by: str = "profile") -> Profile:
    """Read a profile.

    Parameters
    ----------
    name_or_path : str or Path
        Name of a shipped profile, or a path: something that ends in .json or holds a path separator.
    given_by : str
        What the user set to it: flag, argument or key, for the fault of an unknown name.

    Raises
    ------
    BadInput
        Unknown name (with the closest), unreadable file, or every fault of the file with its JSON path.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, str) and not text.endswith(".json") and "/" not in text:
        path = SHIPPED / f"{text}.json"
        if not path.is_file():
            names = list_profiles()
            allowed = f"one of the {len(names)} shipped profiles (rollsim profiles list) or a path to a .json file"
            raise BadInput(Fault(given_by, "", text, allowed, closest(text, names), "unknown profile"))
    else:
        path = Path(name_or_path)
    return parse_profile(_read(path), text)


def parse_profile(text: str, file: str) -> Profile:
    """Parse the JSON text of a profile; `file` is what errors name."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(Fault(file, place, message=f"not JSON: {error.msg}")) from None
    except RecursionError:
        raise BadInput(Fault(file, message="not a profile: nested too deeply")) from None
    except ValueError:
        raise BadInput(Fault(file, message="not a profile: a number of thousands of digits")) from None
    if not isinstance(data, dict):
        raise BadInput(Fault(file, "$", type(data).__name__, "an object", message="not a profile"))
    faults = []
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        message = "missing" if version is None else "unknown schema version"
        faults.append(Fault(file, "$.schema_version", version, str(SCHEMA_VERSION), message=message))
    try:
        profile = Profile.model_validate(data | {"schema_version": SCHEMA_VERSION})
    except ValidationError as error:
        raise BadInput(faults + model_faults(error, Profile, file, "$")) from None
    if faults:
        raise BadInput(faults)
    return profile


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = [str(other) for other in path.parent.glob("*.json")]
        raise BadInput(Fault(str(path), closest=closest(path, siblings), message="no such file")) from None
    except OSError as error:
        raise BadInput(Fault(str(path), message=f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise BadInput(Fault(str(path), f"byte {error.start}", message="not UTF-8 text")) from None
