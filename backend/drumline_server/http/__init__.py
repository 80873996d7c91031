"""The API over HTTP: routes, who may call them, limits, and errors as answers."""
