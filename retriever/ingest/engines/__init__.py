"""The engines that do the work of an ingestion: the threads of this process, or the workers of a Ray cluster."""

from retriever.errors import Misuse
from retriever.ingest.engines.base import Encodes, Engine

__all__ = ["ENGINES", "Encodes", "Engine", "check", "opened"]

ENGINES = ("local", "ray")


def check(name: str, address: str | None) -> None:
    """Raise an error if the engine is unknown, or if the address is not valid for the engine."""
    if name not in ENGINES:
        raise Misuse(f"unknown engine {name!r}; known: {', '.join(ENGINES)}.")
    if name == "local" and address is not None:
        raise Misuse('`address` is the address of a Ray cluster; it needs `engine="ray"`.')
    if name == "ray":
        from retriever.ingest.engines.ray.probe import check as check_ray

        check_ray(address)


def opened(name: str, address: str | None = None) -> Engine:
    """Return an engine, as a context manager that starts it on entry and stops it on exit."""
    check(name, address)
    if name == "local":
        return Engine()
    from retriever.ingest.engines.ray.engine import Ray

    return Ray(address)
