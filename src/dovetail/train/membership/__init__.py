"""Which workers train together: rendezvous, generations, and the connection to the agent."""
