"""What people look at: a report page of a release, and pictures of plans, fits and comparisons."""

from consilience.report.pictures import Picture, picture
from consilience.report.promise import default_path
from consilience.report.write import write_report

__all__ = ["Picture", "default_path", "picture", "write_report"]
