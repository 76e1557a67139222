"""One file a question; every figure the README shows can be made again from here."""
