"""Speed and size beside other systems on the same sentences."""
