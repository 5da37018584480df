"""How many examples a property is asked about: few in the default run, more where one searches."""

from hypothesis import settings

SEARCHED = 4
"""Times as many examples as the default run has, under `make slow`."""


def examples(few: int) -> settings:
    """Returns the settings of a property that costs seconds for a hundred examples."""
    searches = settings.get_current_profile_name() == "search"
    return settings(max_examples=few * SEARCHED if searches else few)
