"""Files of known content: where they come from and how they are verified."""
