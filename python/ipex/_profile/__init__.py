"""Where the time of an optimised model goes: `ipex.profile`."""

from .op_time import OpTime
from .profile import Profile, profile

__all__ = ["OpTime", "Profile", "profile"]
