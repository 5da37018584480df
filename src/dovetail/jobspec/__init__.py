"""Job specs as users write them: YAML, batch scripts with `#SBATCH` lines, or a command."""
