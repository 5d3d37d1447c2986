"""Questions in SQL, which read the tables of a place and nothing else."""
