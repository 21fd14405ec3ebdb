"""The 2020 census's noisy measurement files: read, simulated, and made into consistent tables."""

from consilience.census.files import State, read_state, states_of, summary
from consilience.census.rivals import errors_by_level, top_down, two_pass
from consilience.census.simulate import Truth, read_truth, simulate
from consilience.census.tables import schema_of, state_model, write_state

__all__ = [
    "State",
    "Truth",
    "errors_by_level",
    "read_state",
    "read_truth",
    "schema_of",
    "simulate",
    "state_model",
    "states_of",
    "summary",
    "top_down",
    "two_pass",
    "write_state",
]
