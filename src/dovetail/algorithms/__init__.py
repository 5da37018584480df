"""Mathematics without jobs: arrays in, arrays out. Imports nothing else of Dovetail."""
