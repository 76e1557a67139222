"""Playwright, where it is installed; elsewhere the test modules that ask for it are skipped."""

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
Browser, Page, Route, expect = sync_api.Browser, sync_api.Page, sync_api.Route, sync_api.expect
