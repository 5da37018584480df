"""Programs for developers of Dovetail; they run from a checkout and are not in the wheel."""
