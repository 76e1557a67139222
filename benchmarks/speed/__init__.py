"""Measure the speed and size of several systems on the same sentences."""
