"""Where the time of an optimised model goes: `ipex.profile`."""

from .profile import OpTime, Profile, profile

__all__ = ["OpTime", "Profile", "profile"]
