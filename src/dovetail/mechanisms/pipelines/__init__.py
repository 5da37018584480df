"""Where the stages of a pipeline go, and the virtual machine that orders jobs (A-SRPT)."""
