"""Records converted once to arrays on disk, which every process then maps into memory."""
