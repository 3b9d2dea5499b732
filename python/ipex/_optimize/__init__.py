"""`ipex.optimize` for nn.Modules: a file per knob, and `packed/`, the layers that compute with packed weights."""

from .auto_kernel_selection import kernel_choices, use_kernel_choices
from .channels_last import disable_auto_channels_last, enable_auto_channels_last
from .front_door import REPORT, optimize

__all__ = [
    "REPORT",
    "disable_auto_channels_last",
    "enable_auto_channels_last",
    "kernel_choices",
    "optimize",
    "use_kernel_choices",
]
