"""Programs that come inside wheels. Found without importing the packages, which start things of their own."""

from importlib.util import find_spec
from pathlib import Path

from lamina.errors import ConfigurationError


def program(package: str, pattern: str) -> Path:
    """The program in an installed package. ConfigurationError where it is not there."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(folder).glob(pattern)):
            return found
    raise ConfigurationError(
        f"the package {package} is missing or holds no {Path(pattern).name}: pip install 'lamina[local]'"
    )
