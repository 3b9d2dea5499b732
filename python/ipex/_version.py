from importlib.metadata import version
from pathlib import Path

__version__ = version("ipex")

# For CMAKE_PREFIX_PATH: find_package(ipex) works from it.
cmake_prefix_path = str(Path(__file__).parent / "share" / "cmake")
