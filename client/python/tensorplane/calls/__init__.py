"""The calls of the API, each a function that returns a Call or a Stream. Client and AsyncClient have them as methods."""
