"""`flow`: whitening, a radial map and learned couplings, with an adjustable strength."""
