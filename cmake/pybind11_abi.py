"""Prints the definitions that give our pybind11 the ABI name of torch's, for CMake.

Two extensions share types only where the names agree. Up to torch 2.8 the name holds the version of the compiler that
built the wheel, which is seldom ours; torch keeps it for its extensions. Later versions of pybind11 name the ABI alone.
"""

import torch

for part in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    name = getattr(torch._C, f"_PYBIND11_{part}", None)
    if name is not None:
        print(f'PYBIND11_{part}="{name}"', end=";")
