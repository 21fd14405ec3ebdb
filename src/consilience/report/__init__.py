"""What people look at: a report page of a release, and pictures of plans, fits and comparisons."""

from consilience.report.write import write_report

__all__ = ["write_report"]
