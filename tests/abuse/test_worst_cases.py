"""No text makes a reader work more than in proportion to its length.

A limit that a slow machine keeps easily, and that anything worse than proportional passes by far: the longest
of these takes about three seconds where nothing else runs.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.abuse.worst_cases import OF_TEXTS, OF_TURNS

LIMIT_S = 60


@pytest.mark.parametrize("reader", ["json", *OF_TEXTS, *OF_TURNS])
def test_the_worst_texts_are_read_in_bounded_time(reader: str) -> None:
    command = [sys.executable, "-m", "tests.abuse.worst_cases", reader]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, timeout=LIMIT_S, capture_output=True, check=False)  # noqa: S603 - our own module
    assert done.returncode == 0, done.stderr.decode()[-2000:]
