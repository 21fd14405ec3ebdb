"""What people look at: a report page of a release, and pictures of plans, fits and comparisons."""

from consilience.report.page import write_report
from consilience.report.pictures import Picture, picture
from consilience.report.promise import default_path

__all__ = ["Picture", "default_path", "picture", "write_report"]
