"""Readers of files, one module for each format or family of formats, and the process for foreign formats."""
