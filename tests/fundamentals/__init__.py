"""A tutorial in tests: one idea a file, in order. Please keep them readable before anything else."""
