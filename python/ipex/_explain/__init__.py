"""What became of a model: `ipex.explain`."""

from .decision import Decision
from .report import Report, explain

__all__ = ["Decision", "Report", "explain"]
