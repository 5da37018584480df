"""Results as people read them: tables, plots, and the HTML page."""
