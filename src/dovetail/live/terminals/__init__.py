"""Interactive jobs: how bytes travel between a client and the process of its job."""
