"""Verification, repair and salvage of damaged collections."""
