"""examples/container/Dockerfile, as far as it can be read without building it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAGES = re.split(r"(?m)^FROM ", (ROOT / "examples" / "container" / "Dockerfile").read_text())[1:]


def test_the_build_can_ask_apt_for_the_source_of_onednn():
    build, run = STAGES
    assert "/var/lib/apt/lists" not in build
    assert "rm -rf /var/lib/apt/lists" in run


def test_the_time_in_the_wheel_can_be_given():
    # The context has no .git.
    assert "ARG SOURCE_DATE_EPOCH\n" in STAGES[0]
    assert "COMMIT_TIME = $${SOURCE_DATE_EPOCH:-" in (ROOT / "Makefile").read_text()
