"""Actors: ordinary API clients that play kubelets, controllers and other people, on any API server."""
