"""Runs a build and says how far it is: show_progress.py TITLE LOG COMMAND...

All that the build prints goes to LOG. Shown are its own messages ("-- ipex: ..."), and how many files are compiled: in
one line that changes on a terminal, and once in a while elsewhere. Of a build that fails the end of the log is shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

COUNT = re.compile(r"^\s*\[(\d+)/(\d+)\]")
EVERY_SECONDS = 30


class Progress:
    """What has been said so far."""

    def __init__(self, title: str) -> None:
        self.title, self.start, self.said = title, time.monotonic(), 0.0
        self.is_terminal = sys.stdout.isatty()

    def count(self, done: int, total: int) -> None:
        """Say how many files are compiled."""
        now = time.monotonic()
        if not self.is_terminal and now - self.said < EVERY_SECONDS:
            return
        self.said = now
        line = f"{self.title}: {done} of {total} files, {now - self.start:.0f} s"
        print(f"\r{line}\033[K" if self.is_terminal else line, end="" if self.is_terminal else "\n", flush=True)

    def say(self, text: str) -> None:
        """Say something on a line of its own."""
        start = "\r\033[K" if self.is_terminal else ""
        print(f"{start}{self.title}: {text}", flush=True)


def main(title: str, log: str, *command: str) -> int:
    """Run the command and return its exit code."""
    progress = Progress(title)
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    progress.say(f"begins; what it prints goes to {log}")
    with path.open("w") as file:
        build = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        assert build.stdout is not None
        for line in build.stdout:
            file.write(line)
            counted = COUNT.match(line)
            if counted:
                progress.count(int(counted[1]), int(counted[2]))
            elif "ipex: " in line and line.lstrip().startswith("-- "):
                progress.say(line.strip().removeprefix("-- ipex: "))
    code = build.wait()
    took = time.monotonic() - progress.start
    if code:
        progress.say(f"FAILED after {took:.0f} s. The end of {log}:")
        print("".join(path.read_text().splitlines(keepends=True)[-60:]), file=sys.stderr)
    else:
        progress.say(f"done in {took:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
