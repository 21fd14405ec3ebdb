"""Records: rows of codes over a domain, and their exact counts. Holds people's rows and synthetic ones alike.

Estimation never imports this layer; of models only sampling does, which makes rows and reads none.
"""

from consilience.records.dataset import Dataset

__all__ = ["Dataset"]
