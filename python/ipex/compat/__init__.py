"""Importing this lets scripts that were written for IPEX run on ipex.

>>> import ipex.compat
>>> import intel_extension_for_pytorch as ipex  # now finds what of its names is covered

`ipex run script.py` does the same for a script that stays as it is.

`docs/migrating.md` says which calls are covered. The others raise an error that names the replacement. As IPEX did when
it was imported, this puts every frozen TorchScript module in the process through our passes;
`enable_onednn_fusion(False)` is the way back.
"""

from __future__ import annotations

import sys

from .._process_wide import register_jit_passes
from .module import NAME, SUBMODULES, make_module
from .not_covered import Finder

if NAME not in sys.modules:
    sys.modules[NAME] = make_module()
    sys.meta_path.append(Finder(SUBMODULES))
    register_jit_passes()
