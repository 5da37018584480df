"""Parses job specs: YAML files, batch scripts with `#SBATCH` lines, and commands."""
