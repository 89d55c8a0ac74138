"""What all training shares: one loop, batches by number, checkpoints, settings and folders of runs."""
