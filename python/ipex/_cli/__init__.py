"""The command line: `python -m ipex COMMAND`, and `ipex COMMAND`.

A command is a file of this folder. Its docstring says what it does. It has `add_arguments(parser)` and `run(options)`,
which returns the exit code, or `main(arguments)` where it parses them itself, with `parser()`. A new command is such a
file, and its name below; one of two words, `llm serve`, is the file llm_serve.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import cast

from .. import _C, __version__, cmake_prefix_path
from .env import isa_lines

COMMANDS = ("optimize", "aot", "explain", "profile", "verify", "bench", "llm", "llm serve", "run", "env")

OK, DIFFERS, MISUSED = 0, 1, 2
EXIT_CODES = (
    "exit codes: 0 all is well, 1 the answer is no (models differ, nothing could be done), 2 wrong arguments or files"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for, and return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for words in (2, 1):
        if " ".join(arguments[:words]) in COMMANDS:
            return _run(" ".join(arguments[:words]), arguments[words:])
    if not arguments:
        _parser().print_help()
        return OK
    if not arguments[0].startswith("-"):
        return failed(f"ipex: expected a command, got '{arguments[0]}'. Take one of these:\n{_listed()}", MISUSED)
    options = _parser().parse_args(arguments)
    if options.cmake_dir:
        print(cmake_prefix_path)
    elif options.isa:
        try:
            print("\n".join(isa_lines()))
        except RuntimeError as error:
            return failed(error, DIFFERS)
    elif options.passes:
        print("\n".join(_C.pass_names()))
    else:
        print(__version__)
    return OK


def failed(error: object, code: int) -> int:
    """Say on stderr what went wrong, and return the exit code."""
    print(error, file=sys.stderr)
    return code


def help_of(name: str) -> str:
    """Return what `ipex NAME --help` prints; of `run`, which has no parser, a line."""
    return (_module(name).__doc__ or "") if name == "run" else parser_of(name).format_help()


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments of a command."""
    command = _module(name)
    if hasattr(command, "parser"):
        return cast(argparse.ArgumentParser, command.parser())
    parser = argparse.ArgumentParser(
        prog=f"ipex {name}",
        description=command.__doc__,
        epilog=EXIT_CODES,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    command.add_arguments(parser)
    return parser


def _run(name: str, arguments: list[str]) -> int:
    command = _module(name)
    if hasattr(command, "main"):
        return int(command.main(arguments) or OK)
    options = parser_of(name).parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    try:
        return int(command.run(options))
    except (ValueError, TypeError, OSError) as error:
        return failed(error, MISUSED)
    except RuntimeError as error:
        # Of a model that fails, TorchScript gives the whole traceback; its last line says what is wrong.
        text = str(error).strip()
        return failed(text if text.startswith("ipex") else f"ipex {name}: {text.splitlines()[-1]}", MISUSED)
    except KeyboardInterrupt:
        return failed(f"ipex {name}: interrupted", 130)


def _listed() -> str:
    """Return the commands, a line for each."""
    return "\n".join(f"  {name:10} {(_module(name).__doc__ or '').splitlines()[0]}" for name in COMMANDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ipex",
        usage="ipex COMMAND ...\n       ipex COMMAND --help\n       ipex [--cmake-dir | --isa | --passes | --version]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"commands:\n{_listed()}",
        epilog=EXIT_CODES,
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--cmake-dir", action="store_true", help="the folder for CMAKE_PREFIX_PATH")
    asked.add_argument("--isa", action="store_true", help="which instructions are there, and which would be used")
    asked.add_argument("--passes", action="store_true", help="the passes, in order, by the names that `disable` takes")
    asked.add_argument("--version", action="store_true", help="the version")
    return parser


def _module(name: str) -> ModuleType:
    return importlib.import_module(f".{name.replace(' ', '_')}", __name__)
