#!/bin/sh
# Says what is missing before anything is downloaded or built. PYTHON names the interpreter to check.
missing=0
need() {
  echo "ipex: missing: $1" >&2
  missing=1
}

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
  need "Python 3.10 or later as '$PYTHON' (set PYTHON=... to name another)"
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
  need "Python's venv module (on Debian: apt-get install python3-venv)"
"$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null ||
  need "Python's headers (on Debian: apt-get install python3-dev)"
echo 'int main() { return 0; }' | ${CXX:-c++} -std=c++20 -fopenmp -x c++ -o /dev/null - 2>/dev/null ||
  need "a C++20 compiler with OpenMP as '${CXX:-c++}' (on Debian: apt-get install g++)"
exit $missing
