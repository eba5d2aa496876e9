"""Many videos, each mapped into a folder of its own, by many workers, here or on other machines."""
