"""How fast a job trains alone: computation, network, start-up, and the cost of switching."""
