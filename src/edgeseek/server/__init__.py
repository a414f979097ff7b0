"""HTTP: OpenAI's API over one loaded model. Schemas, routes, streaming, lifecycle; no model logic.

Needs the extra `server`. Importing this package does not; `edgeseek.server.lifecycle.serve` says what to
install.
"""
