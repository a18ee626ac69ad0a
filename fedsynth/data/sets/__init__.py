"""The data sets, found by themselves: every file of this folder is imported by `data.datasets`."""
