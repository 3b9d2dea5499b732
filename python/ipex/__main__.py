"""`python -m ipex`: facts that build scripts ask for, the benchmark, and scripts that were written for IPEX."""

import argparse
import sys

from . import _C, __version__, cmake_prefix_path, isa


def main() -> None:
    """Print what was asked for."""
    if sys.argv[1:2] == ["bench"]:
        from .bench.command import main as bench

        return bench(sys.argv[2:])
    if sys.argv[1:2] == ["run"]:
        from .compat.run import main as run

        return run(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m ipex",
        epilog="python -m ipex bench MODEL: time a model, here and elsewhere; --help tells more. "
        "python -m ipex run SCRIPT: run a script that was written for IPEX",
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--cmake-dir", action="store_true", help="the folder for CMAKE_PREFIX_PATH")
    asked.add_argument("--isa", action="store_true", help="which instructions are there, and which would be used")
    asked.add_argument("--passes", action="store_true", help="the passes, in order, by the names that `disable` takes")
    asked.add_argument("--version", action="store_true", help="the version")
    arguments = parser.parse_args()
    if arguments.cmake_dir:
        print(cmake_prefix_path)
    elif arguments.isa:
        print(f"highest of the CPU  {isa.highest_cpu()}")
        print(f"highest in ipex     {isa.highest_binary()}")
        try:
            own = [min(isa.current(), isa.highest_binary()), *isa.optional_families()]
            print(f"used by ipex        {', '.join(map(str, own))}")
            print(f"used by oneDNN      {isa.onednn()}")
        except RuntimeError as error:
            raise SystemExit(str(error)) from None
    elif arguments.passes:
        print("\n".join(_C.pass_names()))
    else:
        print(__version__)


if __name__ == "__main__":
    main()
