"""The metadata proxy's server: connections of clients and of the upstream, as pairs of asyncio protocols."""
