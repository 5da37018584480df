"""Programs for the work on Dovetail itself. None of them is in the wheel."""
