"""What became of a model: `ipex.explain`."""

from .report import Decision, Report, explain

__all__ = ["Decision", "Report", "explain"]
